// The explorer as a widget of a notebook. Python puts viewer.js, draw.js and page.js before this, and PAGE and STYLE: one module, as anywidget wants.
function asking(model) {
  const waiting = new Map(), me = Math.random().toString(36).slice(2); // every view hears every answer
  const heard = ({ number, ...answer }) => {
    waiting.get(number)?.(answer);
    waiting.delete(number);
  };
  model.on("msg:custom", heard);
  const ask = (path, body = null) => new Promise((answered) => {
    const number = `${me}-${waiting.size}-${performance.now()}`;
    waiting.set(number, answered);
    model.send({ number, path, body });
  });
  return { ask, end: () => model.off("msg:custom", heard) };
}

export default {
  render({ model, el }) {
    const host = document.createElement("div"), root = host.attachShadow({ mode: "open" });
    root.innerHTML = `<style>${STYLE}</style><div class="page">${PAGE}</div>`;
    el.append(host);
    const { ask, end } = asking(model);
    let changed = () => {};
    const link = {
      read: () => model.get("state"),
      write: (state) => { model.set("state", { ...state }); model.save_changes(); },
      listen: (listener) => { changed = listener; model.on("change:state", changed); },
    };
    start({ root, page: root.querySelector(".page"), ask, link });
    return () => { end(); model.off("change:state", changed); };
  },
};
