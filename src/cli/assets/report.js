"use strict";
// Hover and keyboard read-out of the two charts. Everything else on the page works without it.
(() => {
  const source = document.getElementById("points");
  const plots = [...document.querySelectorAll(".plot")];
  if (!source || plots.length === 0) return;
  const data = JSON.parse(source.textContent);
  const last = data.step.length - 1;
  if (last < 0) return;
  const spoken = document.getElementById("spoken");
  const parts = plots.map((plot) => {
    const cursor = document.createElement("div");
    cursor.className = "cursor";
    const readout = document.createElement("div");
    readout.className = "readout";
    cursor.hidden = readout.hidden = true;
    plot.append(cursor, readout);
    return { plot, cursor, readout };
  });
  let at = -1;

  const nearest = (step) => {
    let low = 0, high = last;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (data.step[middle] <= step) low = middle; else high = middle;
    }
    return step - data.step[low] <= data.step[high] - step ? low : high;
  };
  const difference = (i) => {
    const reference = data.reference[i];
    return reference === null || reference === undefined ? null : data.loss[i] - reference;
  };
  const lines = (i) => {
    const out = [["step", String(data.step[i])], ["chip", data.chips[data.leg[i]] ?? "?"], ["loss", data.loss[i].toFixed(6)]];
    const gap = difference(i);
    if (gap !== null) {
      out.push(["uninterrupted", data.reference[i].toFixed(6)]);
      out.push(["difference", gap === 0 ? "0" : gap.toExponential(1)]);
    }
    return out;
  };
  const show = (i, owner) => {
    at = Math.max(0, Math.min(last, i));
    const share = data.high > data.low ? (data.step[at] - data.low) / (data.high - data.low) : 0;
    for (const { plot, cursor, readout } of parts) {
      cursor.hidden = false;
      cursor.style.left = `${share * 100}%`;
      readout.hidden = plot !== owner;
      if (readout.hidden) continue;
      readout.replaceChildren();
      for (const [name, value] of lines(at)) {
        const row = document.createElement("div");
        const bold = document.createElement("b");
        bold.textContent = value;
        row.append(`${name} `, bold);
        readout.append(row);
      }
      readout.style.left = share < 0.5 ? `calc(${share * 100}% + 10px)` : "auto";
      readout.style.right = share < 0.5 ? "auto" : `calc(${(1 - share) * 100}% + 10px)`;
    }
  };
  const hide = () => {
    at = -1;
    for (const { cursor, readout } of parts) cursor.hidden = readout.hidden = true;
  };
  const stride = Math.max(1, Math.round(last / 20));
  const keys = { ArrowLeft: -1, ArrowRight: 1, PageUp: -stride, PageDown: stride, Home: -Infinity, End: Infinity };

  for (const { plot } of parts) {
    const point = (event) => {
      const box = plot.getBoundingClientRect();
      const share = Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
      show(nearest(data.low + share * (data.high - data.low)), plot);
    };
    plot.addEventListener("pointermove", point);
    plot.addEventListener("pointerdown", point);
    plot.addEventListener("pointerleave", hide);
    plot.addEventListener("blur", hide);
    plot.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { hide(); return; }
      const by = keys[event.key];
      if (by === undefined) return;
      event.preventDefault();
      show((at < 0 ? 0 : at) + by, plot);
      spoken.textContent = lines(at).map((pair) => pair.join(" ")).join(", ");
    });
  }
})();
