// Checks signatures of webhooks with Linear's own library.
//   usage: node linear_webhook.mjs NODE_MODULES < plan
// The plan is {secret, body, signature}; the answer says whether the library accepts the signature, whether it accepts
// it for another body or with another secret, and has a signature that it accepts.
import { createHmac } from "node:crypto";
import { createRequire } from "node:module";
import { text } from "node:stream/consumers";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.argv[2]}/x.js`);
const { LinearWebhookClient } = await import(pathToFileURL(require.resolve("@linear/sdk/webhooks")).href);

const { secret, body, signature } = JSON.parse(await text(process.stdin));

const accepts = (secret, body, signature) => {
    try {
        const timestamp = JSON.parse(body).webhookTimestamp;
        return new LinearWebhookClient(secret).verify(Buffer.from(body), signature, timestamp) === true;
    } catch {
        return false;
    }
};
const theirs = createHmac("sha256", secret).update(Buffer.from(body)).digest("hex");
console.log(JSON.stringify({
    accepted: accepts(secret, body, signature),
    tampered: accepts(secret, `${body} `, signature),
    other_secret: accepts("another", body, signature),
    signature: accepts(secret, body, theirs) ? theirs : null,
}));
