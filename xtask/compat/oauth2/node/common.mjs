// What the programs here share: the site under test, the operator's login page, the upstream, and the run of cases.

import assert from 'node:assert/strict';

export const way = process.env.OAUTH2_WAY;
export const issuer = `${process.env.OAUTH2_SERVER}/${way}`;
export const strict = way !== 'kong';
export const signed = way === 'signed';
export const APP = { id: 'app', secret: 'TheSecretOfTheApp', redirect: 'https://app.example.org/callback' };
export const PUBLIC = { id: 'public-app', secret: '', redirect: 'https://public.example.org/callback' };
export const ENCODED = { id: 'app-2.example', secret: 'a+b %41/c=d&e~f!g*h', redirect: 'https://app.example.org/back?tenant=7&area=a-b' };

/** What the library says to the gateway's answer `invalid_grant`. Kong calls it `invalid_request`. */
export const INVALID_GRANT = strict ? 'invalid_grant' : 'invalid_request';

/** Sends the browser to the login page. The user bob logs in, and the page asks the gateway. */
export async function login(url, server = issuer) {
  const { origin, pathname, searchParams } = new URL(url);
  assert.equal(origin + pathname, 'https://login.example.org/authorize');
  const body = new URLSearchParams(searchParams);
  body.set('provision_key', 'the-login-page');
  body.set('authenticated_userid', 'bob');
  const headers = { 'x-forwarded-proto': 'https' };
  const path = `${new URL(server).pathname}/oauth2/authorize`;
  const answer = await fetch(process.env.OAUTH2_BACK_CHANNEL + path, { method: 'POST', headers, body });
  const told = await answer.json();
  assert.ok(told.redirect_uri, `the gateway told the login page ${JSON.stringify(told)}`);
  return new URL(told.redirect_uri);
}

/** Calls the upstream with a token, and returns the status and what the upstream has seen. */
export async function call(token) {
  const answer = await fetch(`${issuer}/resource`, { headers: { authorization: `Bearer ${token}` } });
  return { status: answer.status, seen: (await answer.json()).headers };
}

export async function admits(token, { user, scope } = {}) {
  const { status, seen } = await call(token);
  assert.equal(status, 200);
  assert.equal(seen['x-consumer-username'], 'app');
  assert.equal(seen['x-authenticated-userid'], user);
  assert.equal(seen['x-authenticated-scope'], scope);
}

export async function refuses(token) {
  assert.equal((await call(token)).status, 401);
}

/** Runs the cases named on the command line, and prints a line in JSON for each. */
export async function run(cases) {
  for (const name of process.argv.slice(2)) {
    let failure = null;
    try {
      assert.ok(cases[name], 'there is no such case');
      await cases[name]();
    } catch (error) {
      const { error: code, error_description: description, cause } = error;
      failure = [error.message, code, description, cause && JSON.stringify(cause)].filter(Boolean).join('; ');
    }
    console.log(JSON.stringify({ case: name, failure }));
  }
}
