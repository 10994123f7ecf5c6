// Arrays of the page: base64 in elements, which are emptied once they are read.

const KINDS = { f4: Float32Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array };

function decoded(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) bytes[at] = letters.charCodeAt(at);
  return bytes;
}

/** The typed array of an element `<script id=... data-kind=...>`. */
function arrayOf(id) {
  const element = document.getElementById(id);
  const bytes = decoded(element.textContent);
  element.textContent = "";
  return new KINDS[element.dataset.kind](bytes.buffer);
}

/** What a page holds; each cloud with its arrays in place of their ids. */
function sceneOf(id) {
  const scene = JSON.parse(document.getElementById(id).textContent);
  for (const cloud of scene.clouds) {
    for (const [name, array] of Object.entries(cloud.arrays)) cloud.arrays[name] = arrayOf(array);
    for (const [name, array] of Object.entries(cloud.labels)) cloud.labels[name] = arrayOf(array);
    cloud.shown = true;
    cloud.count = cloud.arrays.places.length / 3;
  }
  scene.map = decoded(scene.map);
  return scene;
}
