// Playwright drives an installed Firefox over WebDriver BiDi, and for every visit it sends a command by which the
// colour scheme is set. Firefox ESR does not know that command yet and refuses the visit: it is left out.
const Module = require("module");

const compile = Module.prototype._compile;
const command = /this\.[\w.]+\.send\("emulation\.setMediaFeaturesOverride", /g;
Module.prototype._compile = function (code, ...rest) {
  return compile.call(this, code.replace(command, "Promise.all([], "), ...rest);
};
