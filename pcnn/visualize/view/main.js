// The page: what was drawn, chosen and picked, and what mouse, touch and keys do.

const isDark = () => document.documentElement.dataset.theme === "dark";

function refuse(text) {
  element("message").textContent = text;
  element("message").hidden = false;
  element("panel").hidden = true;
}

function start() {
  document.documentElement.dataset.theme =
    matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const scene = sceneOf("scene");
  element("title").textContent = scene.title;
  element("simulated").textContent = scene.simulated;
  element("note").textContent = scene.note;
  const canvas = element("canvas");
  const status = element("status");
  const numbers = (value) => value.toLocaleString("en");
  let drawing;
  try {
    drawing = new Drawing(canvas, scene.clouds, (drawn, total) => {
      status.textContent = drawn < total
        ? `${numbers(drawn)} of ${numbers(total)} points` : `${numbers(total)} points`;
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
    if (point && before) {
      values.push(["to the last", round(point.place.distanceTo(before.place))]);
    }
    showValues(values);
    drawing.mark(point && point.place);
  };
  const resize = (size) => {
    drawing.size = Math.min(8, Math.max(0.5, size));
    element("size").value = drawing.size;
    drawing.draw();
  };

  const pose = (on) => {
    for (const part of drawing.parts) if (part.cloud.pose) drawing.move(part, on);
    pick(null);
    drawing.draw();
  };
  const fold = (open) => {
    element("sections").hidden = !open;
    element("fold").textContent = open ? "hide" : "show";
    element("fold").setAttribute("aria-expanded", String(open));
    drawing.resize();
  };
  showClouds(scene, show, pose);
  showLayers(layers, layer, choose);
  pose(true);
  const many = scene.clouds.reduce((sum, cloud) => sum + cloud.count, 0);
  resize(many > 300000 ? 1.5 : many > 80000 ? 2 : many > 20000 ? 3 : 4);
  show();
  fold(innerWidth > 640);
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
  canvas.addEventListener("dblclick", (event) => {
    const point = pointAt(drawing, event.offsetX, event.offsetY);
    if (point) drawing.turnAbout(point.place);
  });

  element("size").addEventListener("input", (event) => resize(Number(event.target.value)));
  element("fit").addEventListener("click", () => drawing.fit());
  element("top").addEventListener("click", () => drawing.fit(true));
  element("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    show();
  });
  element("save").addEventListener("click", () => {
    drawing.drawNow(0);
    canvas.toBlob((blob) => {
      const link = made("a", { href: URL.createObjectURL(blob), download: "view.png" });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  });
  element("fold").addEventListener("click", () => fold(element("sections").hidden));

  const keys = {
    "+": () => drawing.zoom(1 / 1.2),
    "=": () => drawing.zoom(1 / 1.2),
    "-": () => drawing.zoom(1.2),
    f: () => drawing.fit(),
    t: () => drawing.fit(true),
    "[": () => resize(drawing.size - 0.5),
    "]": () => resize(drawing.size + 0.5),
    Escape: () => pick(null),
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === document.body && event.key.startsWith("Arrow")) {
      const { key, code, shiftKey } = event;  // the canvas moves before it was clicked, too
      canvas.dispatchEvent(new KeyboardEvent("keydown", { key, code, shiftKey }));
    }
    const number = Number(event.key);
    if (number >= 1 && number <= layers.length) {
      element("layers").querySelectorAll("input")[number - 1].click();
    } else keys[event.key.length === 1 ? event.key.toLowerCase() : event.key]?.();
  });
}

start();
