// Lists elements, attributes and addresses that no template of ours writes.
(() => {
  const wrong = [], own = address => /^(\/(?!\/)|#|\?|$)/.test(address);
  for (const element of document.querySelectorAll("*")) {
    const tag = element.localName, shown = element.outerHTML.slice(0, 160);
    if (["iframe", "frame", "object", "embed", "base", "style", "math", "template", "img", "audio", "video"].includes(tag)) wrong.push(shown);
    if (tag === "script" && !/^\/ui\/assets\/[\w.-]+$/.test(element.getAttribute("src") ?? "")) wrong.push(shown);
    if (tag === "link" && !own(element.getAttribute("href"))) wrong.push(shown);
    if (tag === "meta" && element.httpEquiv) wrong.push(shown);
    for (const { name, value } of element.attributes) {
      if (/^on|^style$|^srcdoc$/.test(name)) wrong.push(`${name} of ${shown}`);
      // The page of an issue in its tracker.
      if (tag === "a" && name === "href" && element.rel === "noreferrer" && /^https:/.test(value)) continue;
      if (/^(href|src|action|formaction|data|xlink:href)$/.test(name) && !own(value)) wrong.push(`${name} of ${shown}`);
    }
  }
  if (/[\u202a-\u202e\u2066-\u2069\u200b\ufeff\u0000-\u0008\u001b]/.test(document.body.textContent)) wrong.push("hidden characters");
  return wrong;
})()
