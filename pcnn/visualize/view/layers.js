// Layers: colours of the points of a cloud, and which of them are drawn.

const RIGHT = 0, WRONG = 1, UNJUDGED = 2;

/** Every layer of the clouds, in the order in which they are offered. */
function layersOf(scene) {
  const some = (has) => scene.clouds.some(has);
  const layers = [];
  for (const name of ["prediction", "truth", "labels"]) {
    if (some((cloud) => name in cloud.labels)) layers.push(labelLayer(scene, name));
  }
  if (some((cloud) => "prediction" in cloud.labels && "truth" in cloud.labels)) {
    layers.push(errorLayer(scene));
  }
  layers.push(scalarLayer(scene, "height", heights));
  for (const name of ["intensity", "confidence"]) {
    const values = (cloud) => cloud.arrays[name];
    if (some(values)) layers.push(scalarLayer(scene, name, values));
  }
  if (some((cloud) => cloud.arrays.rgb)) layers.push(colourLayer());
  layers.push(plainLayer(scene));
  return layers;
}

function heights(cloud) {
  const { places } = cloud.arrays;
  const found = new Float32Array(cloud.count);
  for (let at = 0; at < cloud.count; at++) found[at] = places[3 * at + 2] + cloud.origin[2];
  return found;
}

/** A layer of classes: each with its name, colour, number of points and switch. */
function classLayer(name, entries, ids) {
  const classes = entries.map((entry) => ({ ...entry, count: 0, shown: true }));
  return {
    name,
    classes,
    count(clouds) {
      for (const one of classes) one.count = 0;
      for (const cloud of clouds) {
        const of = cloud.shown ? ids(cloud) : null;
        if (of) for (let at = 0; at < of.length; at++) classes[of[at]].count++;
      }
    },
    tint(cloud, tints) {
      const of = ids(cloud);
      for (let at = 0; at < cloud.count; at++) {
        const one = classes[of ? of[at] : classes.length - 1];
        tints.set(one.color, 4 * at);
        tints[4 * at + 3] = one.shown ? 255 : 0;
      }
    },
  };
}

const labelLayer = (scene, name) =>
  classLayer(name, scene.classes, (cloud) => cloud.labels[name]);

/** Points right, wrong, and without a truth, which is the last class of a scene. */
function errorLayer(scene) {
  const none = scene.classes.length - 1;
  const kept = new Map();
  const judged = (cloud) => {
    const { prediction, truth } = cloud.labels;
    if (!prediction || !truth) return null;
    if (!kept.has(cloud)) {
      const of = (class_, at) => (truth[at] === none ? UNJUDGED : class_ === truth[at] ? RIGHT : WRONG);
      kept.set(cloud, Uint8Array.from(prediction, of));
    }
    return kept.get(cloud);
  };
  return classLayer("errors", scene.judgements, judged);
}

/** A layer of numbers, by a scale of colours whose ends are quantiles of the values. */
function scalarLayer(scene, name, valuesOf) {
  const [low, high] = scene.ranges[name];
  const kept = new Map();
  const values = (cloud) => {
    if (!kept.has(cloud)) kept.set(cloud, valuesOf(cloud));
    return kept.get(cloud);
  };
  return {
    name,
    range: [low, high],
    tint(cloud, tints) {
      const of = values(cloud);
      const last = scene.map.length / 3 - 1;
      const [first, span] = scaleEnds(last);
      for (let at = 0; at < cloud.count; at++) {
        const share = of ? Math.min(Math.max((of[at] - low) / (high - low || 1), 0), 1) : 0.5;
        const place = 3 * Math.round(first + share * span);
        for (let part = 0; part < 3; part++) tints[4 * at + part] = of ? scene.map[place + part] : 128;
        tints[4 * at + 3] = 255;
      }
    },
  };
}

/** First entry and span of the colours that stand out from the ground. */
function scaleEnds(last) {
  return isDark() ? [0.18 * last, 0.82 * last] : [0, 0.9 * last];
}

function colourLayer() {
  return {
    name: "colour",
    tint(cloud, tints) {
      const { rgb } = cloud.arrays;
      for (let at = 0; at < cloud.count; at++) {
        for (let part = 0; part < 3; part++) tints[4 * at + part] = rgb ? rgb[3 * at + part] : 128;
        tints[4 * at + 3] = 255;
      }
    },
  };
}

/** Every cloud in a colour of its own. */
function plainLayer(scene) {
  return {
    name: scene.clouds.length > 1 ? "clouds" : "points",
    tint(cloud, tints) {
      for (let at = 0; at < cloud.count; at++) {
        tints.set(cloud.color, 4 * at);
        tints[4 * at + 3] = 255;
      }
    },
  };
}
