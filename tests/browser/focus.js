// Says where the focus is, and whether a person can see that: compares how the element looks with and without it.
(() => {
  const at = document.activeElement;
  if (!at || at === document.body) return null;
  const all = [...document.querySelectorAll("*")];
  const looks = () => { const s = getComputedStyle(at); return [s.outlineStyle, s.outlineWidth, s.boxShadow, s.left, s.borderColor].join(); };
  const box = at.getBoundingClientRect();
  const focused = looks();
  const ring = getComputedStyle(at);
  const drawn = ring.outlineStyle !== "none" && parseFloat(ring.outlineWidth) >= 2;
  return {
    index: all.indexOf(at), tag: at.tagName, name: (at.getAttribute("aria-label") ?? at.labels?.[0]?.textContent ?? at.textContent).trim().slice(0, 60),
    seen: drawn && box.width > 0 && box.height > 0 && box.right > 0 && box.left < innerWidth && box.bottom > 0 && box.top < innerHeight,
    looks: focused,
  };
})()
