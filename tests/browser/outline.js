// Writes what the content of a page says and offers, line by line, without what differs between two runs.
(() => {
  const blocks = new Set(("ARTICLE ASIDE DD DETAILS DIV DL DT FIELDSET FIGURE FOOTER FORM H1 H2 H3 H4 HEADER LEGEND LI MAIN " +
    "NAV OL P PRE SECTION SUMMARY TABLE TBODY TFOOT THEAD TR UL").split(" "));
  const folded = document.querySelectorAll("details:not([open])");
  for (const details of folded) details.open = true;
  const lines = [];
  let line = "";
  const flush = () => { const text = line.replace(/[ \n]+/g, " ").trim(); if (text) lines.push(text); line = ""; };
  const marker = element => {
    const content = getComputedStyle(element, "::before").content;
    return /^"(.+)"$/.test(content) ? content.slice(1, -1) : "";
  };
  const control = element => {
    const name = element.labels?.[0]?.textContent.trim() || element.getAttribute("aria-label") || element.name;
    if (element.type === "hidden") return element.name === "form_token" ? "" : ` (${element.name}=${element.value})`;
    if (element.type === "checkbox" || element.type === "radio") return ` [${element.checked ? "x" : " "}]`;
    const more = element.tagName === "SELECT" ? ` of ${[...element.options].map(option => option.text).join(", ")}` : "";
    return ` {${name}: ${element.value}${more}}${element.required ? " required" : ""}`;
  };
  const walk = node => {
    if (node.nodeType === Node.TEXT_NODE) { line += node.data; return; }
    if (node.nodeType !== Node.ELEMENT_NODE || !node.checkVisibility() && node.type !== "hidden") return;
    const tag = node.tagName, inside = () => node.childNodes.forEach(walk);
    if (["SCRIPT", "STYLE", "NOSCRIPT"].includes(tag)) return;
    // The statistics are read every ten seconds.
    if (node.id === "statistics") { flush(); lines.push("(statistics)"); return; }
    if (blocks.has(tag) && tag !== "DD" && !(tag === "LI" && node.closest("nav"))) flush();
    if (tag === "PRE") { lines.push(...node.textContent.replace(/\n$/, "").split("\n").map(text => "    " + text)); return; }
    if (tag === "TIME") { line += "TIME"; return; }
    if (tag === "PROGRESS") { line += ` (progress ${node.value} of ${node.max})`; return; }
    if (tag === "svg") { line += " (picture)"; return; }
    if (["INPUT", "SELECT", "TEXTAREA"].includes(tag)) { line += control(node); return; }
    if (tag === "A") { line += " ["; inside(); line += `](${node.getAttribute("href")})`; return; }
    if (tag === "BUTTON") { line += ` <${node.getAttribute("aria-label") ?? node.textContent}>`; return; }
    if (tag === "FORM") line += `${node.method} ${node.getAttribute("action") ?? "here"}:`;
    if (/^H[1-4]$/.test(tag)) line += "#".repeat(+tag[1]) + " ";
    if (tag === "SUMMARY") line += "> ";
    if (tag === "LI" && !node.closest("nav")) line += "- ";
    if (["alert", "status"].includes(node.getAttribute("role"))) line += `${node.getAttribute("role")}: `;
    if (node.hasAttribute("aria-current")) line += "*";
    line += marker(node);
    node.childNodes.forEach((child, index) => {
      if (tag === "TR" && index > 0 && /^T[DH]$/.test(child.tagName)) line += " | ";
      walk(child);
    });
    if (/^(SPAN|SMALL|LI)$/.test(tag)) line += " ";
    if (tag === "DT") line += ": ";
    if (blocks.has(tag) && tag !== "DT" && !(tag === "LI" && node.closest("nav"))) flush();
  };
  walk(document.querySelector("main") ?? document.body);
  flush();
  for (const details of folded) details.open = false;
  const same = [
    [/\b[0-9a-f]{64}\b/g, "DIGEST"], [/\b[0-9a-f]{40}\b/g, "COMMIT"], [/\b[0-9a-z]{25}\b/g, "ID"], [/\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/g, "ID"],
    [/\b(mem|art|ses|job|run|call|hd)_[0-9A-Za-z]{8,}\b/g, "$1_ID"], [/\b[0-9a-f]{16}([0-9a-f]{16})?\b/g, "ID"],
    [/\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?Z?/g, "TIME"], [/\b\d+(\.\d+)? (µs|ms|s|min|h|days)\b/g, "SPAN"],
    [/\b\d+(\.\d+)? ([KMGT]i)?B\b/g, "SIZE"], [/\b(127\.0\.0\.1|localhost):\d{2,5}\b/g, "$1:PORT"],
    [/\b\d{4}-\d\d-\d\d\b/g, "DATE"], [/\b[0-9a-f]{7,12}\b/g, "COMMIT"],
    [/^(audit|Rows|Key ID|Last rotation): .*/, "$1: N"], [/^(Version): .*/, "$1: N"],
    [/-[0-9a-z]{8,16}-[0-9a-z]{8}\.json\b/g, "-ID.json"], [/(\/long-term\/\w+\/[\w-]+)-[0-9a-z]{4}\.json\b/g, "$1-ID.json"], [/\b(LOCAL-\d+)-[a-z2-9]{6}\b/g, "$1-ID"], [/the memory store (failed|is not available)/g, "the memory store FAILED"],
    [/(the store cannot be read: )\w+/g, "$1WHY"],
    [/\/tmp\/[^\s/"]+/g, "/HOME"], [/(after=)[^&)\s]+/g, "$1NEXT"],
  ];
  // Rows of the audit are written behind the calls: their number and size differ.
  return lines.filter(text => !text.includes(" | audit | ")).map(text => same.reduce((text, [what, by]) => text.replace(what, by), text)).join("\n") + "\n";
})()
