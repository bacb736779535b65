// Lists what is wrong with how a page is laid out in the present window.
(() => {
  const wrong = [], name = element => element.outerHTML.slice(0, 120), root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) {
    const wide = [...document.body.querySelectorAll("*")].filter(element =>
      element.getBoundingClientRect().right > root.clientWidth + 1 && !element.closest(".scroll, pre, svg"));
    wrong.push(`the page is ${root.scrollWidth} wide in a window of ${root.clientWidth}: ${wide.slice(0, 3).map(name)}`);
  }
  for (const element of document.body.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary")) {
    const box = element.getBoundingClientRect();
    if (!element.checkVisibility() || element.closest(".skip")) continue;
    if (box.width < 1 || box.height < 1) wrong.push(`no room for ${name(element)}`);
    if (innerWidth > 1000 && box.right > innerWidth) wrong.push(`out of sight to the right: ${name(element)}`);
  }
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
    const moving = document.getAnimations().length;
    if (moving) wrong.push(`${moving} animations though motion is reduced`);
    for (const element of document.querySelectorAll("*")) {
      const style = getComputedStyle(element);
      if (style.transitionDuration.split(", ").some(time => parseFloat(time) > 0)) wrong.push(`a transition of ${name(element)}`);
    }
  }
  return wrong;
})()
