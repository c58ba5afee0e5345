// Answers as server-sent events, for the Chat page and for the public page of an assistant.
"use strict";

/* [name, data] of each event of a response. */
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (waiting + value).split("\n\n");
    waiting = blocks.pop();
    for (const block of blocks) {
      const [, name, data] = /^event: (.*)\ndata: (.*)$/.exec(block) ?? [];
      if (name) yield [name, JSON.parse(data)];
    }
  }
}

const parseNodes = (html) => document.importNode(new DOMParser().parseFromString(html, "text/html").body, true).childNodes;
