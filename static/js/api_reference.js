// The API reference: the calls of the OpenAPI document by their tag. What a call takes and gives is drawn when it opens.
"use strict";
{
  const main = document.getElementById("main"), groups = document.getElementById("groups"), find = document.getElementById("find");
  const BOUNDS = ["default", "format", "pattern", "minimum", "exclusiveMinimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"];
  const calls = [];
  let api = {};

  // A copy of a template. texts: by the names of its places; one with nothing to say is left out, true keeps its own.
  const shape = (name, texts = {}) => {
    const node = document.getElementById(`${name}-shape`).content.firstElementChild.cloneNode(true);
    for (const place of node.querySelectorAll("[data-of]")) {
      const text = texts[place.dataset.of];
      if (!text) place.remove();
      else if (text !== true) place.textContent = text;
    }
    return node;
  };

  const drawOnce = (details, draw) => details.addEventListener("toggle", () => details.append(draw()), { once: true });
  const nameOf = (schema) => schema.$ref.split("/").pop();
  const resolve = (schema) => (schema.$ref ? api.components.schemas[nameOf(schema)] : schema);
  const choices = (schema) => schema.anyOf ?? schema.oneOf ?? schema.allOf;

  const typeOf = (schema) => {
    if (schema.$ref) return nameOf(schema);
    if (choices(schema)) return choices(schema).map(typeOf).join(" | ");
    if ("const" in schema) return JSON.stringify(schema.const);
    if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
    if (schema.items) return `[${typeOf(schema.items)}]`;
    if (schema.additionalProperties?.type || schema.additionalProperties?.$ref) return `{…: ${typeOf(schema.additionalProperties)}}`;
    return schema.type ?? "any";
  };

  // The schemas with fields of their own that a value may hold, no deeper than the first of them.
  const parts = (schema) => {
    if (schema.$ref || schema.properties) return [schema];
    const inside = [...(choices(schema) ?? []), schema.items, schema.additionalProperties];
    return inside.filter((each) => each && typeof each === "object").flatMap(parts);
  };

  const field = (name, schema, required, description) => {
    const bounds = BOUNDS.filter((each) => each in schema).map((each) => `${each}: ${JSON.stringify(schema[each])}`).join(" · ");
    const item = shape("field", { name, type: typeOf(schema), required, bounds, description: description ?? schema.description });
    for (const part of parts(schema)) {
      const more = document.createElement("details");
      more.append(document.createElement("summary"));
      more.firstChild.textContent = typeOf(part);
      drawOnce(more, () => fieldsOf(part));
      item.append(more);
    }
    return item;
  };

  const list = (items) => {
    const node = document.createElement("ul");
    node.append(...items);
    return node;
  };

  const fieldsOf = (schema) => {
    const whole = resolve(schema), properties = Object.entries(whole.properties ?? {});
    if (!properties.length) return list([field("", whole)]);
    return list(properties.map(([name, each]) => field(name, each, whole.required?.includes(name))));
  };

  const sampleOf = (schema) => {
    const whole = resolve(schema), given = whole.default ?? whole.const ?? whole.enum?.[0];
    if (given !== undefined) return given;
    if (choices(whole)) return sampleOf(choices(whole)[0]);
    if (whole.properties) return Object.fromEntries((whole.required ?? []).map((name) => [name, sampleOf(whole.properties[name])]));
    return { string: "…", integer: whole.minimum ?? 1, number: whole.minimum ?? 1, boolean: true, array: [], object: {} }[whole.type] ?? "…";
  };

  const exampleOf = ({ method, path, call }, media, schema) => {
    const lines = [`curl -X ${method} '${location.origin}${path}'`];
    if (call.security) lines.push("-H 'Authorization: Bearer …'");
    if (media === "application/json") lines.push("-H 'Content-Type: application/json'", `-d '${JSON.stringify(sampleOf(schema))}'`);
    else if (media) lines.push(...(resolve(schema).required ?? []).map((name) => `-F '${name}=@…'`));
    return lines.join(" \\\n  ");
  };

  const drawBody = (entry) => {
    const { call } = entry, [media, content] = Object.entries(call.requestBody?.content ?? {})[0] ?? [];
    const body = shape("body", { description: call.description, media, example: exampleOf(entry, media, content?.schema) });
    const fill = (name, node) => (node ? body.querySelector(`[data-part=${name}]`).append(node) : body.querySelector(`[data-part=${name}]`).remove());
    const parameters = call.parameters ?? [];
    fill("parameters", parameters.length && list(parameters.map((each) => field(each.name, each.schema, each.required, each.description))));
    fill("request", content && fieldsOf(content.schema));
    const answers = new Map(); // the statuses of equal answers, most of which are errors, share a line
    for (const [status, answer] of Object.entries(call.responses)) {
      const schema = Object.values(answer.content ?? {})[0]?.schema ?? {}, key = JSON.stringify(schema);
      answers.set(key, { schema, statuses: [...(answers.get(key)?.statuses ?? []), status] });
    }
    fill("answers", list([...answers.values()].map(({ schema, statuses }) => field(statuses.join(", "), schema))));
    return body;
  };

  const show = () => {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const { node, text } of calls) node.hidden = !words.every((word) => text.includes(word));
    for (const group of groups.children) group.hidden = !group.querySelector(".call:not([hidden])");
    document.getElementById("shown").textContent = calls.filter(({ node }) => !node.hidden).length;
  };

  const follow = () => {
    const node = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (node?.matches(".call")) {
      node.open = true;
      node.scrollIntoView();
    }
  };

  const draw = () => {
    const sections = new Map();
    document.getElementById("about").textContent = api.info.description;
    for (const [path, methods] of Object.entries(api.paths)) {
      for (const [verb, call] of Object.entries(methods)) {
        const method = verb.toUpperCase(), tag = call.tags?.[0] ?? "";
        if (!sections.has(tag)) sections.set(tag, shape("group", { name: tag }));
        const node = shape("call", { method, path, summary: call.summary });
        node.id = call.operationId;
        drawOnce(node, () => drawBody({ method, path, call }));
        node.addEventListener("toggle", () => node.open && history.replaceState(null, "", `#${node.id}`));
        sections.get(tag).append(node);
        calls.push({ node, text: `${method} ${path} ${call.summary} ${call.description ?? ""} ${tag}`.toLowerCase() });
      }
    }
    groups.append(...sections.values());
    find.addEventListener("input", show);
    addEventListener("hashchange", follow);
    show();
    follow();
  };

  fetch(main.dataset.source).then(async (answer) => {
    if (!answer.ok) throw new Error(answer.status);
    api = await answer.json();
    draw();
  }).catch(() => { document.getElementById("unread").hidden = false; });
}
