"use strict";
// A view is made when it is asked for, in a frame of its own: its program stands in the report once.
for (const button of document.querySelectorAll("button[data-view]")) {
  button.addEventListener("click", () => {
    const held = (id) => document.getElementById(id).textContent;
    const decoded = (id) => new TextDecoder().decode(
      Uint8Array.from(atob(held(id)), (letter) => letter.charCodeAt(0)));
    const frame = document.createElement("iframe");
    frame.title = button.dataset.title;
    frame.sandbox = "allow-scripts allow-downloads";
    frame.srcdoc = [
      "<!doctype html><html lang=en><meta charset=utf-8>",
      `<style>${held("view-style")}</style><body>`,
      decoded("view-page"), decoded(button.dataset.view),
      `<script>${held("view-three")}</${"script"}>`,
      `<script>${held("view-program")}</${"script"}>`,
    ].join("");
    button.replaceWith(frame);
  });
}
