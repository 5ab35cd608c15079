(function () {
  "use strict";
  var plots = JSON.parse(document.getElementById("plots").textContent);
  var nodes = Array.prototype.slice.call(document.querySelectorAll("[data-plot]"));
  var settings = { responsive: true, displaylogo: false, displayModeBar: window.matchMedia("(hover: hover)").matches ? "hover" : false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
  var paper_width_px = 700;

  function draw(position) {
    if (position >= nodes.length) {
      document.documentElement.setAttribute("data-drawn", String(nodes.length));
      return;
    }
    var node = nodes[position];
    var plot = plots[Number(node.getAttribute("data-plot"))];
    Plotly.newPlot(node, plot.data, plot.layout, settings).then(function () {
      setTimeout(function () { draw(position + 1); }, 0);
    });
  }

  // Paper is narrower than most screens: figures are laid out anew for it, and back.
  function resize(width_px) {
    nodes.forEach(function (node) {
      if (node.layout) { Plotly.relayout(node, width_px ? { width: width_px } : { width: null, autosize: true }); }
    });
  }
  window.addEventListener("beforeprint", function () { resize(paper_width_px); });
  window.addEventListener("afterprint", function () { resize(0); });
  draw(0);
})();
