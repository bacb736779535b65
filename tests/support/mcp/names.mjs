// Loaded before the conformance suite: its scenarios about tasks call tools by names without a family, which a pack cannot have.
// What leaves for `slow_compute` goes to `conformance__slow_compute`, in the message and in the header that repeats it.
const names = new Set(["slow_compute", "failing_job", "protocol_error_job"]);
const fetchAsItIs = globalThis.fetch;

globalThis.fetch = (target, options = {}) => {
  if (typeof options.body !== "string") return fetchAsItIs(target, options);
  const message = JSON.parse(options.body);
  const name = message.params?.name;
  if (message.method !== "tools/call" || !names.has(name)) return fetchAsItIs(target, options);
  message.params.name = `conformance__${name}`;
  const headers = new Headers(options.headers);
  if (headers.get("mcp-name") === name) headers.set("mcp-name", message.params.name);
  return fetchAsItIs(target, { ...options, headers, body: JSON.stringify(message) });
};
