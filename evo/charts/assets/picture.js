"use strict";
// Interactive pictures: each is unpacked and drawn when it comes into sight, in the page's colours.
const pictures = (() => {
  const unpacked = async (text) => {
    const bytes = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  let library = null;
  const withVega = () => {
    library ??= unpacked(document.getElementById("vega").textContent).then((code) => {
      const script = document.createElement("script");
      script.textContent = code;
      document.head.append(script);
    });
    return library;
  };

  // The rows of a dataset, which came in columns; a column of texts has each text once.
  const rowsOf = (columns) => {
    const names = Object.keys(columns);
    const values = names.map((name) => {
      const column = columns[name];
      return Array.isArray(column) ? column : column.at.map((place) => column.of[place]);
    });
    return (values[0] ?? []).map((_, row) => Object.fromEntries(names.map((name, place) => [name, values[place][row]])));
  };
  const coloured = (text) => {
    const style = getComputedStyle(document.documentElement);
    return text.replace(/var\((--[\w-]+)\)/g, (_, name) => style.getPropertyValue(name).trim());
  };

  const times = (value) => (value === null ? "" : `${Number(value.toPrecision(3))}x`);
  const span = (seconds) => {
    if (seconds < 120) return `${Math.round(seconds)} s`;
    return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
  };
  const turning = /[\p{Cc}\p{Cf}]/gu; // characters that no one sees, or that turn the direction of writing
  const told = (each, sanitize) => {
    const interval = each.speedup === null ? "" : `${times(each.speedup)} [${times(each.low)}, ${times(each.high)}]`;
    const lines = {
      kernel: each.id, task: each.task, "made by": each.mutator, model: each.model === "none" ? "" : each.model,
      change: each.change, verdict: each.verdict, certain: times(each.certain), estimate: interval,
      generation: each.generation, after: span(each.elapsed), place: each.island, cell: each.cell,
      [each.kind ?? ""]: each.kind ? `from ${each.from} to ${each.to}, after ${span(each.moved_after)}` : "",
      "judged on": each.worker === "none" ? "" : each.worker,
    };
    const shown = Object.entries(lines).filter(([, value]) => value !== "" && value !== null);
    return `<dl>${shown.map(([name, value]) => `<dt>${name}</dt><dd>${sanitize(String(value).replace(turning, " "))}</dd>`).join("")}</dl>`;
  };

  // A figure keeps its height until an act on it is done. What a reader sees below it then stays where it is: the browser
  // sees to that with its next frame alone, and who moves the page before that moves it by as much for good.
  const still = async (figure, act) => {
    Object.assign(figure.style, { height: `${figure.offsetHeight}px`, overflow: "hidden" });
    await act().finally(() => {
      const { top, bottom, height } = figure.getBoundingClientRect();
      Object.assign(figure.style, { height: "", overflow: "" });
      if (top < 0 && bottom < innerHeight) scrollBy({ top: figure.offsetHeight - height, behavior: "instant" });
    });
  };

  const kept = new Map(); // what a reader has chosen, by the picture's title: a newer state of the page keeps it
  const drawn = async (figure) => {
    const [title, canvas] = [figure.querySelector("figcaption").textContent, figure.querySelector(".canvas")];
    const [, text] = await Promise.all([withVega(), unpacked(figure.querySelector("script").textContent)]);
    let view = null;
    let width = 0;
    const draw = () => still(figure, async () => {
      width = canvas.clientWidth;
      const spec = JSON.parse(coloured(text));
      for (const [name, columns] of Object.entries(spec.datasets)) spec.datasets[name] = rowsOf(columns);
      const room = Math.max(width - 110, 150);
      for (const panel of spec.vconcat) panel.width = room;
      spec.config.legend.columns = Math.max(1, Math.floor(room / 130));
      const chosen = kept.get(title) ?? {};
      for (const param of spec.params) if (param.name in chosen) param.value = chosen[param.name];
      view?.finalize();
      figure.querySelector(".controls").replaceChildren();
      const made = await vegaEmbed(canvas, spec, {
        actions: false, ast: true, renderer: "canvas", defaultStyle: false, bind: figure.querySelector(".controls"), loader: { target: "_self" },
        tooltip: { formatTooltip: told, disableDefaultStyle: true },
      });
      view = made.view;
      for (const { name, value, bind } of spec.params) {
        if (!bind) continue;
        view.addSignalListener(name, (_, now) => {
          const all = { ...kept.get(title), [name]: now };
          if (name === "until" && now === bind.max) delete all.until; // the newest state, also when there is a newer one
          kept.set(title, all);
        });
      }
      const shown = canvas.querySelector("canvas");
      shown.setAttribute("role", "img");
      shown.setAttribute("aria-label", figure.dataset.told);
      canvas.classList.add("ready");
    });
    const redraw = async () => {
      await draw();
      figure.view = view;
    };
    await redraw();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => figure.isConnected && redraw());
    let timer = 0;
    new ResizeObserver(() => {
      clearTimeout(timer);
      timer = setTimeout(() => figure.isConnected && Math.abs(canvas.clientWidth - width) > 8 && redraw(), 200);
    }).observe(canvas);
  };
  return (part) => {
    const sight = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        sight.unobserve(entry.target);
        drawn(entry.target);
      }
    }, { rootMargin: "300px" });
    for (const figure of part.querySelectorAll("figure.picture")) sight.observe(figure);
  };
})();
