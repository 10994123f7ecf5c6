// The panel: switches of clouds and layers, the legend, and the values of a point. Text that comes
// from files is set as text, never as markup.

const element = (id) => document.getElementById(id);

function made(tag, { text, ...properties } = {}, ...children) {
  const one = Object.assign(document.createElement(tag), properties);
  if (text !== undefined) one.textContent = text;
  one.append(...children);
  return one;
}

function swatch(color) {
  const one = made("span", { className: "swatch" });
  one.style.background = `rgb(${Array.from(color).join(" ")})`;
  return one;
}

/** A switch or a choice with its label. */
function choice(kind, name, checked, onChange, { color, count, group } = {}) {
  const input = made("input", { type: kind, checked, name: group ?? "" });
  input.addEventListener("change", () => onChange(input.checked));
  const label = made("label", {}, input);
  if (color) label.append(swatch(color));
  label.append(made("span", { className: "name", text: name }));
  if (count !== undefined) {
    label.append(made("span", { className: "count", text: count.toLocaleString("en") }));
  }
  return label;
}

const round = (value) => String(Number(value.toPrecision(3)));

/** Legend of a layer: classes with switches, or a scale with its ends. */
function showLegend(scene, layer, onChange) {
  const legend = element("legend");
  if (layer.classes) {
    layer.count(scene.clouds);
    const there = layer.classes.filter((one) => one.count);
    const list = made("div", { className: "classes" });
    const fill = () => list.replaceChildren(...there.map((one) => choice(
      "checkbox", one.name, one.shown,
      (on) => { one.shown = on; onChange(); },
      { color: one.color, count: one.count },
    )));
    const all = (on) => made("button", { type: "button", text: on ? "all" : "none", onclick: () => {
      for (const one of there) one.shown = on;
      fill();
      onChange();
    } });
    fill();
    legend.replaceChildren(
      made("h2", { text: "Points of each class" }), list, made("div", { className: "all" }, all(true), all(false)),
    );
  } else if (layer.range) {
    const scale = made("canvas", { className: "scale", width: 256, height: 1 });
    const pen = scale.getContext("2d");
    const placeOf = scaleOf(scene);
    for (let at = 0; at < 256; at++) {
      const place = placeOf(at / 255);
      pen.fillStyle = `rgb(${Array.from(scene.map.subarray(place, place + 3)).join(" ")})`;
      pen.fillRect(at, 0, 1, 1);
    }
    const ends = made("div", { className: "ends" });
    ends.append(...layer.range.map((value) => made("span", { text: round(value) })));
    legend.replaceChildren(made("h2", { text: layer.name }), scale, ends);
  } else {
    legend.replaceChildren();
  }
}

/** Switches of clouds, and of the pose of a registered pair. */
function showClouds(scene, onShown, onPosed) {
  const { clouds } = scene;
  const box = element("clouds");
  const posed = clouds.some((cloud) => cloud.pose);
  box.hidden = clouds.length < 2 && !posed;
  if (clouds.length > 1) {
    box.append(...clouds.map((cloud) => choice(
      "checkbox", cloud.name, true,
      (on) => { cloud.shown = on; onShown(); },
      { color: cloud.color, count: cloud.count },
    )));
  }
  if (posed) box.append(choice("checkbox", "registered", true, onPosed));
}

function showLayers(layers, chosen, onChosen) {
  element("layers").append(...layers.map((layer, at) => choice(
    "radio", layer.name, layer === chosen, () => onChosen(at), { group: "layer" },
  )));
}

function showValues(values) {
  const rows = values.map(([name, value]) => made(
    "tr", {}, made("th", { text: name, scope: "row" }), made("td", { text: value }),
  ));
  element("picked").hidden = !values.length;
  element("picked").replaceChildren(made("table", {}, made("tbody", {}, ...rows)));
}

/** Pixels that the panel hides at the left and at the bottom of the window. */
function hidden() {
  const box = element("panel").getBoundingClientRect();
  return box.width < 0.7 * innerWidth ? [box.right, 0] : [0, innerHeight - box.top];
}
