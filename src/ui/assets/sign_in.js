// Fills in the token of a sign-in link. It is in the fragment of the address, which is sent to no server, and it is
// taken out of the history. A person presses the button: a link alone signs nobody in.
const token = location.hash.slice(1);
if (/^hd_[0-9a-f_]+$/.test(token)) {
  history.replaceState(null, "", location.pathname);
  document.getElementById("token").value = token;
  document.getElementById("link").hidden = false;
  document.getElementById("sign-in").focus();
}
