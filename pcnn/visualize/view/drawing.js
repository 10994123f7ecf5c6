// Drawing with three.js: on demand, a prefix of the points while something moves.

const VERTEX = `
attribute vec4 tint;
uniform float size, focus;
varying vec3 shade;
void main() {
  vec4 seen = modelViewMatrix * vec4(position, 1.0);
  gl_Position = projectionMatrix * seen;
  gl_PointSize = clamp(size * focus / max(-seen.z, 1e-6), 0.7 * size, 4.0 * size);
  if (tint.a == 0.0) gl_Position = vec4(0.0, 0.0, 2.0, 1.0);  // outside of what is drawn
  shade = tint.rgb;
}`;
const FRAGMENT = `
varying vec3 shade;
void main() { gl_FragColor = vec4(shade, 1.0); }`;

const SLOW = 45, QUICK = 20;  // milliseconds a frame
const FEWEST = 30000;  // points while something moves
const REST = 180;  // milliseconds without a movement

class Drawing {
  /** Fails with an error where the browser gives no WebGL. */
  constructor(canvas, clouds, onDrawn) {
    this.renderer = new THREE.WebGLRenderer({ canvas, antialias: false, powerPreference: "high-performance" });
    this.canvas = canvas;
    this.onDrawn = onDrawn;
    this.scene = new THREE.Scene();
    this.camera = new THREE.PerspectiveCamera(50, 1, 0.1, 1000);
    this.camera.up.set(0, 0, 1);
    this.size = 2;
    this.material = new THREE.ShaderMaterial({
      vertexShader: VERTEX,
      fragmentShader: FRAGMENT,
      uniforms: { size: { value: 2 }, focus: { value: 1 } },
    });
    this.parts = clouds.map((cloud) => this.part(cloud, clouds[0].origin));
    this.marker = this.markerOf();
    this.controls = this.controlsOf(canvas);
    this.budget = matchMedia("(pointer: coarse)").matches ? 200000 : 800000;
    this.moving = false;
    this.resize();
    this.fit();
    new ResizeObserver(() => this.resize()).observe(canvas);
  }

  part(cloud, origin) {
    const geometry = new THREE.BufferGeometry();
    const { places } = cloud.arrays;
    geometry.setAttribute("position", new THREE.BufferAttribute(places, 3));
    const tints = new THREE.BufferAttribute(new Uint8Array(4 * cloud.count), 4, true);
    geometry.setAttribute("tint", tints);
    const points = new THREE.Points(geometry, this.material);
    points.frustumCulled = false;
    points.matrixAutoUpdate = false;
    this.scene.add(points);
    const part = { cloud, points, tints, shift: cloud.origin.map((value, axis) => value - origin[axis]) };
    this.move(part, false);
    return part;
  }

  /** Put a cloud where its file has it, or where its pose puts it. */
  move(part, posed) {
    const { points, cloud, shift } = part;
    if (posed) points.matrix.fromArray(cloud.pose);  // column by column
    else points.matrix.makeTranslation(...shift);
    points.matrixWorldNeedsUpdate = true;
  }

  markerOf() {
    const geometry = new THREE.BufferGeometry();
    geometry.setAttribute("position", new THREE.BufferAttribute(new Float32Array(3), 3));
    const marker = new THREE.Points(geometry);
    const size = 11 * devicePixelRatio, color = dark.matches ? 0xffffff : 0x000000;
    marker.material.setValues({ color, size, sizeAttenuation: false, depthTest: false });
    marker.renderOrder = 1;
    marker.visible = false;
    marker.frustumCulled = false;
    this.scene.add(marker);
    return marker;
  }

  mark(place) {
    this.marker.visible = place !== null;
    if (place) this.marker.position.copy(place);
    this.draw();
  }

  controlsOf(canvas) {
    const controls = new THREE.OrbitControls(this.camera, canvas);
    controls.zoomToCursor = true;
    controls.listenToKeyEvents(canvas);
    controls.addEventListener("change", () => this.moved());
    return controls;
  }

  /** Box of the clouds that are shown, of their inner 98 % along each axis. */
  box() {
    const columns = [[], [], []];
    const place = new THREE.Vector3();
    for (const { cloud, points } of this.parts) {
      if (!cloud.shown) continue;
      for (let at = 0; at < Math.min(cloud.count, 4000); at++) {
        place.fromArray(cloud.arrays.places, 3 * at).applyMatrix4(points.matrix);
        columns.forEach((column, axis) => column.push(place.getComponent(axis)));
      }
    }
    if (!columns[0].length) return { middle: new THREE.Vector3(), extent: 1 };
    const ends = columns.map((column) => {
      const sorted = Float64Array.from(column).sort();
      const at = (share) => sorted[Math.round(share * (sorted.length - 1))];
      return [at(0.01), at(0.99)];
    });
    const middle = new THREE.Vector3(...ends.map(([low, high]) => (low + high) / 2));
    return { middle, extent: Math.max(...ends.map(([low, high]) => high - low)) || 1 };
  }

  /** Look at everything, from a side above or straight from above. */
  fit(above = false) {
    const { middle, extent } = this.box();
    this.extent = extent;
    const away = above ? new THREE.Vector3(0, -1e-4, 1) : new THREE.Vector3(-0.55, -0.75, 0.62);
    const distance = 1.05 * extent * this.covered * Math.max(1, 1.2 / this.free);
    this.camera.position.copy(middle).addScaledVector(away.normalize(), distance);
    this.controls.target.copy(middle);
    this.controls.update();
    this.draw();
  }

  tint(layer) {
    for (const { cloud, points, tints } of this.parts) {
      points.visible = cloud.shown;
      layer.tint(cloud, tints.array);
      tints.needsUpdate = true;
    }
    this.draw();
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !height) return;
    this.renderer.setPixelRatio(Math.min(devicePixelRatio, 2));
    this.renderer.setSize(width, height, false);
    const [left, bottom] = hidden();
    this.camera.aspect = width / height;
    this.camera.setViewOffset(width, height, -left / 2, bottom / 2, width, height);
    this.free = (width - left) / Math.max(height - bottom, 1);
    this.covered = Math.max(width / (width - left), height / Math.max(height - bottom, 1));
    this.draw();
  }

  moved() {
    this.moving = true;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.moving = false;
      this.draw();
    }, REST);
    this.draw();
  }

  /** Draw before the next frame. */
  draw() {
    this.asked ??= requestAnimationFrame((now) => {
      this.asked = undefined;
      this.drawNow(now);
    });
  }

  drawNow(now) {
    if (this.moving && this.last) {
      const took = now - this.last;
      if (took > SLOW) this.budget = Math.max(FEWEST, 0.75 * this.budget);
      else if (took < QUICK) this.budget = Math.min(1.1 * this.budget, 2e7);
    }
    this.last = this.moving ? now : 0;
    const shown = this.parts.filter(({ cloud }) => cloud.shown);
    const total = shown.reduce((sum, { cloud }) => sum + cloud.count, 0);
    const share = this.moving ? Math.min(1, this.budget / Math.max(total, 1)) : 1;
    let drawn = 0;
    for (const { cloud, points } of shown) {
      const count = Math.ceil(share * cloud.count);
      points.geometry.setDrawRange(0, count);
      drawn += count;
    }
    const distance = this.camera.position.distanceTo(this.controls.target);
    this.camera.near = Math.max(distance / 300, this.extent * 1e-5);
    this.camera.far = distance + 20 * this.extent;
    this.camera.updateProjectionMatrix();
    const { uniforms } = this.material;
    uniforms.focus.value = distance;
    uniforms.size.value = this.size * this.renderer.getPixelRatio() * Math.min(2, share ** -0.35);
    this.renderer.setClearColor(getComputedStyle(document.body).backgroundColor);
    this.renderer.render(this.scene, this.camera);
    this.onDrawn(drawn, total);
  }
}
