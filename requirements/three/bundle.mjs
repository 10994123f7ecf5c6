// Writes pcnn/visualize/view/three.js: the parts of three.js that the viewer uses, with its licence.
import { readFileSync } from "node:fs";
import { build } from "esbuild";

const here = new URL(".", import.meta.url).pathname;
const { version } = JSON.parse(readFileSync(`${here}node_modules/three/package.json`, "utf8"));
const licence = readFileSync(`${here}node_modules/three/LICENSE`, "utf8").trim();

await build({
  entryPoints: [`${here}three.mjs`],
  outfile: `${here}../../pcnn/visualize/view/three.js`,
  bundle: true,
  minify: true,
  format: "iife",
  globalName: "THREE",
  target: "es2020",
  banner: { js: `/*! three.js ${version}, https://threejs.org\n\n${licence}\n*/` },
});
