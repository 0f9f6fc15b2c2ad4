// An authorization server of another maker (oidc-provider), on loopback. Its first line says where it is.
//
//   node provider.mjs FOLDER ALGORITHM
//
// FOLDER has its node_modules. POST /withdraw replaces its signing key while it runs.

import { createServer } from "node:http";
import { generateKeyPairSync, randomUUID } from "node:crypto";
import { pathToFileURL } from "node:url";
import { join } from "node:path";

const [folder, algorithm] = process.argv.slice(2);
const { Provider } = await import(pathToFileURL(join(folder, "node_modules/oidc-provider/lib/index.js")));

const kinds = {
  RS256: () => generateKeyPairSync("rsa", { modulusLength: 2048 }),
  PS256: () => generateKeyPairSync("rsa", { modulusLength: 2048 }),
  ES256: () => generateKeyPairSync("ec", { namedCurve: "P-256" }),
  EdDSA: () => generateKeyPairSync("ed25519"),
};

function made() {
  const { privateKey } = kinds[algorithm]();
  return { ...privateKey.export({ format: "jwk" }), kid: randomUUID(), use: "sig", alg: algorithm };
}

function provider(issuer) {
  const found = new Provider(issuer, {
    jwks: { keys: [made()] },
    clients: ["ada", "zoe"].map((client_id) => ({
      client_id,
      client_secret: `${client_id}-secret`,
      grant_types: ["client_credentials"],
      redirect_uris: [],
      response_types: [],
      id_token_signed_response_alg: algorithm,
    })),
    scopes: ["mcp", "write"],
    enabledJWA: { idTokenSigningAlgValues: Object.keys(kinds) },
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => undefined,
        useGrantedResource: () => true,
        getResourceServerInfo: (_ctx, resource) => ({
          scope: "mcp write",
          audience: resource,
          accessTokenTTL: 600,
          accessTokenFormat: resource.includes("opaque") ? "opaque" : "jwt",
          jwt: { sign: { alg: algorithm } },
        }),
      },
    },
  });
  return found.callback();
}

let serve = () => {};
const server = createServer((request, response) => {
  if (request.url === "/withdraw") {
    serve = provider(issuer);
    response.end();
  } else {
    serve(request, response);
  }
});
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
const issuer = `http://127.0.0.1:${server.address().port}`;
serve = provider(issuer);
console.log(issuer);
process.stdin.on("end", () => process.exit(0)).resume();
