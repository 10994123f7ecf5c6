// Layers: colours of the points of a cloud, and which of them are drawn.

const RIGHT = 0, WRONG = 1, UNJUDGED = 2;

/** Every layer of the clouds, in the order in which they are offered. */
function layersOf(scene) {
  const some = (has) => scene.clouds.some(has);
  const layers = [];
  for (const name of ["prediction", "truth", "labels"]) {
    const ids = (cloud) => cloud.labels[name];
    if (some(ids)) layers.push(classLayer(name, scene.classes, ids));
  }
  if (some((cloud) => "prediction" in cloud.labels && "truth" in cloud.labels)) {
    layers.push(errorLayer(scene));
  }
  layers.push(scalarLayer(scene, "height", heights));
  for (const name of ["intensity", "confidence"]) {
    const values = (cloud) => cloud.arrays[name];
    if (some(values)) layers.push(scalarLayer(scene, name, values));
  }
  const rgb = (cloud) => cloud.arrays.rgb;
  if (some(rgb)) layers.push(paintedLayer("colour", rgb, null, () => (_, at) => 3 * at));
  const own = scene.clouds.length > 1 ? "clouds" : "points";  // each in a colour of its own
  layers.push(paintedLayer(own, (cloud) => cloud.color, null, () => () => 0));
  return layers;
}

function heights(cloud) {
  const { places } = cloud.arrays, found = new Float32Array(cloud.count);
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

/** A function of clouds that computes its answer once for each. */
function once(answer) {
  const kept = new Map();
  return (cloud) => kept.get(cloud) ?? kept.set(cloud, answer(cloud)).get(cloud);
}

/** Points right, wrong, and without a truth, which is the last class of a scene. */
function errorLayer(scene) {
  const none = scene.classes.length - 1;
  return classLayer("errors", scene.judgements, once(({ labels: { prediction, truth } }) => {
    if (!prediction || !truth) return null;
    const of = (class_, at) => (truth[at] === none ? UNJUDGED : class_ === truth[at] ? RIGHT : WRONG);
    return Uint8Array.from(prediction, of);
  }));
}

/** A layer of numbers, by a scale of colours whose ends are quantiles of the values. */
function scalarLayer(scene, name, valuesOf) {
  const [low, high] = scene.ranges[name];
  const places = (place = scaleOf(scene)) => (of, at) => place((of[at] - low) / (high - low || 1));
  return { ...paintedLayer(name, once(valuesOf), scene.map, places), range: [low, high] };
}

/** From a share of a scale to its colour's place, among those that stand out from the ground. */
function scaleOf({ map }) {
  const last = map.length / 3 - 1;
  const [first, span] = dark.matches ? [0.18, 0.82] : [0, 0.9];
  return (share) => 3 * Math.round(last * (first + Math.min(Math.max(share, 0), 1) * span));
}

/** A layer whose points take their colours from places of an array; grey without values. */
function paintedLayer(name, valuesOf, colours, places) {
  return {
    name,
    tint(cloud, tints) {
      const of = valuesOf(cloud);
      const from = colours ?? of, placeOf = places();
      for (let at = 0; at < cloud.count; at++) {
        const place = of ? placeOf(of, at) : 0;
        for (let part = 0; part < 3; part++) tints[4 * at + part] = of ? from[place + part] : 128;
        tints[4 * at + 3] = 255;
      }
    },
  };
}

