"use strict";

// Texts enter the page as text nodes only, so that nothing a model wrote is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

function make(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function makeSvg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function button(label, attributes, onClick) {
  const element = make("button", { type: "button", ...attributes }, label);
  element.addEventListener("click", onClick);
  return element;
}

function labelled(label, control) {
  return make("label", {}, label, control);
}

function choice(options, value, onChange) {
  const select = make("select");
  for (const [key, label] of options) select.append(make("option", { value: key }, label));
  select.value = value;
  select.addEventListener("change", () => onChange(select.value));
  return select;
}

function table(head, rows) {
  const isNumber = (text) => text.startsWith("#");
  const cells = head.map((text) =>
    make("th", { class: isNumber(text) ? "number" : null, scope: "col" }, text.replace("#", "")));
  return make("div", { class: "scroll" },
    make("table", {}, make("thead", {}, make("tr", {}, ...cells)), make("tbody", {}, ...rows)));
}

function percent(value) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)} %`;
}

function number(value) {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && (Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3)) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

function runColour(index) {
  return `var(--run-${index % 8})`;
}

function swatch(index, label) {
  const element = make("span", { class: "swatch", role: label ? "img" : null, "aria-label": label, title: label });
  element.style.background = runColour(index);
  return element;
}
