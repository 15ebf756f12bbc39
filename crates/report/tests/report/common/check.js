// Measures a report inside a frame and adds what is wrong with it to #outcome, one line each; "measured" ends a report's list.
"use strict";

function report(frame) {
  const page = frame.contentDocument;
  const found = [];
  const say = (what) => found.push(frame.name + ": " + what.replace(/[<>&\s]+/g, " "));
  try {
    width(page, say);
    page.querySelectorAll("svg.plot").forEach((svg) => plot(page, svg, say));
    // A scenario may ask for none; then the page has no such section.
    if (page.querySelector("#plots") && page.querySelectorAll("svg.plot").length === 0) say("no plot at all");
    if (page.querySelectorAll("table").length === 0) say("no table at all");
    letters(page, say);
  } catch (error) {
    say("the check itself failed: " + error);
  }
  say("measured");
  document.getElementById("outcome").textContent += found.join("\n") + "\n";
}

// The body never scrolls sideways; wide things scroll in boxes of their own.
function width(page, say) {
  const root = page.documentElement;
  if (root.scrollWidth > root.clientWidth) {
    say(`the page scrolls sideways: ${root.scrollWidth} px in ${root.clientWidth}`);
  }
}

// A plot has marks with an extent, as many groups as it says, and no text that is cut off or runs into other text.
function plot(page, svg, say) {
  const name = svg.id + " " + svg.querySelector("title").textContent;
  if (svg.dataset.empty === "true") return say(`empty plot: ${name}`);
  if (!(Number(svg.dataset.points) > 0)) say(`plot without points: ${name}`);
  const shapes = [...svg.querySelectorAll(".marks > :not(g)")];
  const drawn = shapes.filter((shape) => {
    const box = shape.getBBox();
    return (box.width > 0 || box.height > 0) && getComputedStyle(shape).visibility === "visible";
  });
  if (drawn.length === 0) say(`nothing drawn: ${name}`);
  const frame = svg.viewBox.baseVal;
  for (const shape of drawn) {
    const box = shape.getBBox();
    if (box.x < -8 || box.y < -8 || box.x + box.width > frame.width + 8 || box.y + box.height > frame.height + 8) {
      say(`a mark outside the plot: ${name}`);
      break;
    }
  }
  const texts = [...svg.querySelectorAll("text")].map((text) => ({ text: text.textContent.trim(), box: text.getBBox() }));
  for (const { text, box } of texts) {
    if (box.x < -4 || box.y < -4 || box.x + box.width > frame.width + 4 || box.y + box.height > frame.height + 4) {
      say(`text cut off: "${text}" in ${name}`);
    }
  }
  texts.forEach((one, index) => {
    for (const other of texts.slice(index + 1)) {
      const wide = Math.min(one.box.x + one.box.width, other.box.x + other.box.width) - Math.max(one.box.x, other.box.x);
      const high = Math.min(one.box.y + one.box.height, other.box.y + other.box.height) - Math.max(one.box.y, other.box.y);
      // Boxes are as high as the line, and letters are not: a little overlap is none that shows.
      if (wide > 4 && high > 16) say(`texts overlap: "${one.text}" and "${other.text}" in ${name}`);
    }
  });
}

// Nothing is set smaller than 14 px, plots included.
function letters(page, say) {
  const walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  const small = new Set();
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.textContent.trim() || element.closest("title, desc, .hidden")) continue;
    const svg = element.closest("svg.plot");
    const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
    const size = parseFloat(getComputedStyle(element).fontSize) * scale;
    if (size > 0 && size < 13.95) small.add(`${element.tagName}.${element.className.baseVal ?? element.className} at ${size.toFixed(1)} px`);
  }
  small.forEach((what) => say(`small text: ${what}`));
}
