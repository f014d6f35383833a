// A page from file:// may not start a Worker. There this stands in for it: the script runs in a
// hidden frame of the page instead of a thread of its own, behind the same interface.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.onmessage = null;
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    this.loaded = new Promise((resolve) => this.frame.addEventListener("load", resolve, { once: true }));
    document.body.append(this.frame);
    const inside = this.frame.contentWindow;
    inside.document.open();
    inside.document.write("<!doctype html><title>search</title>");
    // What the script posts comes here; what it imports is loaded one after the other.
    inside.postMessage = (data) => this.receive(data);
    inside.importScripts = (...urls) =>
      urls.reduce((before, each) => before.then(() => FrameWorker.load(inside, each)), Promise.resolve());
    const script = inside.document.createElement("script");
    script.src = String(url);
    inside.document.head.append(script);
    inside.document.close();
  }

  static load(inside, url) {
    return new Promise((resolve, reject) => {
      const script = inside.document.createElement("script");
      script.src = String(url);
      script.onload = resolve;
      script.onerror = () => reject(new Error(`${url} can't be loaded`));
      inside.document.head.append(script);
    });
  }

  receive(data) {
    const event = new MessageEvent("message", { data });
    this.onmessage?.(event);
    this.dispatchEvent(event);
  }

  postMessage(data) {
    this.loaded.then(() => {
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    });
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;
