// The page: what was drawn, chosen and picked, and what mouse, touch and keys do.

const dark = matchMedia("(prefers-color-scheme: dark)");

function refuse(text) {
  element("message").textContent = text;
  element("message").hidden = false;
  element("panel").hidden = true;
}

function start() {
  const scene = sceneOf("scene");
  element("title").textContent = scene.title;
  element("simulated").textContent = scene.simulated;
  element("note").textContent = scene.note;
  const canvas = element("canvas");
  const numbers = (value) => value.toLocaleString("en");
  let drawing;
  try {
    drawing = new Drawing(canvas, scene.clouds, (drawn, total) => {
      const some = drawn < total ? `${numbers(drawn)} of ` : "";
      element("status").textContent = `${some}${numbers(total)} points`;
    });
  } catch (error) {
    refuse("This browser gives the page no WebGL, which draws the points. Switch on hardware "
      + "acceleration in its settings, or open the file in another browser.");
    return;
  }
  canvas.addEventListener("webglcontextlost", () => refuse(
    "The graphics driver took the memory of this page back. Load the page again."));

  const layers = layersOf(scene);
  let layer = layers.find((one) => one.name === scene.first) ?? layers[0];
  let picked = null;

  const tint = () => drawing.tint(layer);
  const show = () => {
    showLegend(scene, layer, tint);
    tint();
  };
  const choose = (at) => {
    layer = layers[at];
    show();
  };
  const pick = (point) => {
    const before = picked;
    picked = point;
    const values = point ? valuesOf(scene, point) : [];
    if (point && before) values.push(["to the last", round(point.place.distanceTo(before.place))]);
    showValues(values);
    drawing.mark(point && point.place);
  };
  const resize = (size) => {
    drawing.size = element("size").value = size;
    drawing.draw();
  };
  const pose = (on) => {
    for (const part of drawing.parts) if (part.cloud.pose) drawing.move(part, on);
    pick(null);
    drawing.draw();
  };
  dark.addEventListener("change", show);
  showClouds(scene, show, pose);
  showLayers(layers, layer, choose);
  pose(true);
  const many = scene.clouds.reduce((sum, cloud) => sum + cloud.count, 0);
  resize(many > 300000 ? 1.5 : many > 80000 ? 2 : many > 20000 ? 3 : 4);
  show();
  element("fold").open = innerWidth > 640;
  element("fold").addEventListener("toggle", () => drawing.resize());
  drawing.fit();

  let pressed = null;
  canvas.addEventListener("pointerdown", (event) => {
    pressed = event.isPrimary && event.button === 0 ? [event.clientX, event.clientY] : null;
  });
  canvas.addEventListener("pointerup", (event) => {
    if (!pressed || Math.hypot(event.clientX - pressed[0], event.clientY - pressed[1]) > 4) return;
    canvas.focus();
    pick(pointAt(drawing, event.offsetX, event.offsetY));
  });

  element("size").addEventListener("input", (event) => resize(Number(event.target.value)));
  element("fit").addEventListener("click", () => drawing.fit());
  element("top").addEventListener("click", () => drawing.fit(true));

  const keys = { f: () => drawing.fit(), t: () => drawing.fit(true), escape: () => pick(null) };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const choice = element("layers").querySelectorAll("input")[Number(event.key) - 1];
    if (choice) choice.click();
    else keys[event.key.toLowerCase()]?.();
  });
}

start();
