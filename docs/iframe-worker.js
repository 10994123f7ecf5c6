// Search of pages that are opened from a disk. A browser starts no worker there, so the script of
// the worker runs in a hidden frame of the page instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = []; // messages that came before the script
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.scope = frame.contentWindow;
      const load = (path) =>
        new Promise((loaded, failed) => {
          const script = this.scope.document.createElement("script");
          script.src = new URL(path, location.href);
          script.onload = loaded;
          script.onerror = failed;
          this.scope.document.head.append(script);
        });
      this.scope.importScripts = (...paths) =>
        paths.reduce((before, path) => before.then(() => load(path)), Promise.resolve());
      this.scope.postMessage = (data) =>
        this.dispatchEvent(new MessageEvent("message", { data }));
      load(url).then(() => {
        const waiting = this.waiting;
        this.waiting = null;
        waiting.forEach((data) => this.postMessage(data));
      });
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.scope.dispatchEvent(new MessageEvent("message", { data }));
    }
  };
}
