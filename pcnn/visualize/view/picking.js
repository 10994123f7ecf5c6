// Picking: the point under the pointer, and its numbers as its file has them.

const REACH = 9;  // pixels of the page
const BEHIND = 0.02;  // points this much farther away, as a share, count as being as near

/** The drawn point nearest to a place of the canvas, in front of others; null where none is near. */
function pointAt(drawing, x, y) {
  const { clientWidth: width, clientHeight: height } = drawing.canvas;
  let best = null;
  for (const { cloud, points, tints } of drawing.parts) {
    if (!cloud.shown) continue;
    const { places } = cloud.arrays;
    const m = drawing.camera.projectionMatrix
      .clone().multiply(drawing.camera.matrixWorldInverse).multiply(points.matrix).elements;
    for (let at = 0, place = 0; at < cloud.count; at++, place += 3) {
      const a = places[place], b = places[place + 1], c = places[place + 2];
      const depth = m[3] * a + m[7] * b + m[11] * c + m[15];
      if (depth <= 0 || !tints.array[4 * at + 3]) continue;
      const right = ((m[0] * a + m[4] * b + m[8] * c + m[12]) / depth + 1) * width / 2 - x;
      if (right > REACH || right < -REACH) continue;
      const down = (1 - (m[1] * a + m[5] * b + m[9] * c + m[13]) / depth) * height / 2 - y;
      const off = Math.hypot(right, down);
      if (off > REACH) continue;
      const cost = depth * (1 + BEHIND * off);
      if (!best || cost < best.cost) best = { cloud, points, at, cost };
    }
  }
  if (best) {
    best.place = new THREE.Vector3()
      .fromArray(best.cloud.arrays.places, 3 * best.at).applyMatrix4(best.points.matrix);
  }
  return best;
}

/** The shortest text of a number of float32. */
function shortest(value) {
  for (let digits = 1; digits < 9; digits++) {
    const rounded = Number(value.toPrecision(digits));
    if (Math.fround(rounded) === Math.fround(value)) return String(rounded);
  }
  return String(Number(value.toPrecision(9)));
}

/** Coordinates of a point of a cloud as its file has them. */
function coordinates(cloud, at) {
  const { places, rest } = cloud.arrays;
  return [0, 1, 2].map((axis) => {
    const near = places[3 * at + axis], origin = cloud.origin[axis];
    if (cloud.decimals !== null) return String(Number((origin + near).toFixed(cloud.decimals)));
    if (!rest && !origin) return shortest(near);
    const whole = origin + (near + (rest ? rest[3 * at + axis] : 0));
    return String(Number(whole.toPrecision(15)));
  });
}

/** Names and values of a point, in the order in which they are shown. */
function valuesOf(scene, { cloud, at, points }) {
  const { rows, intensity, rgb, confidence } = cloud.arrays;
  const [x, y, z] = coordinates(cloud, at);
  const values = [["cloud", cloud.name], ["row", String(rows ? rows[at] : at)], ["x", x], ["y", y], ["z", z]];
  if (intensity) values.push(["intensity", shortest(intensity[at])]);
  if (rgb) values.push(["colour", Array.from(rgb.subarray(3 * at, 3 * at + 3)).join(" ")]);
  for (const [name, labels] of Object.entries(cloud.labels)) values.push([name, scene.classes[labels[at]].name]);
  if (confidence) values.push(["confidence", confidence[at].toFixed(3)]);
  return values;
}
