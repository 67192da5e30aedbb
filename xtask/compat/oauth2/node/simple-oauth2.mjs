// Cases of simple-oauth2.

import assert from 'node:assert/strict';
import { randomBytes, createHash } from 'node:crypto';
import { AuthorizationCode, ClientCredentials, ResourceOwnerPassword } from 'simple-oauth2';
import {
  APP, ENCODED, INVALID_GRANT, PUBLIC, admits, issuer, login, refuses, run, signed, strict,
} from './common.mjs';

function settings(app, authorizationMethod = 'body') {
  return {
    client: { id: app.id, secret: app.secret },
    auth: {
      tokenHost: new URL(issuer).origin,
      tokenPath: `${new URL(issuer).pathname}/oauth2/token`,
      revokePath: `${new URL(issuer).pathname}/oauth2/revoke`,
    },
    options: { authorizationMethod },
  };
}

const codes = (app) => {
  const { client, auth, options } = settings(app);
  const login = { authorizeHost: 'https://login.example.org', authorizePath: '/authorize' };
  return new AuthorizationCode({ client, auth: { ...auth, ...login }, options });
};

/** Whether the request of the library was refused with this error. */
function refused(promise, error) {
  return assert.rejects(promise, (thrown) => {
    assert.equal(thrown.data?.payload?.error, error, thrown.message);
    return true;
  });
}

/** Sends the user to the login page, and returns the parameters for the token request. */
async function authorize(code, app, { pkce = true, scope = 'read', state = randomBytes(16).toString('hex') } = {}) {
  const parameters = { redirect_uri: app.redirect, scope, state };
  const verifier = pkce ? randomBytes(32).toString('base64url') : undefined;
  if (pkce) {
    parameters.code_challenge = createHash('sha256').update(verifier).digest('base64url');
    parameters.code_challenge_method = 'S256';
  }
  const answer = (await login(code.authorizeURL(parameters))).searchParams;
  assert.equal(answer.get('state'), state);
  assert.equal(answer.get('iss'), strict ? issuer : null);
  if (answer.has('error')) {
    throw Object.assign(new Error('refused'), { data: { payload: Object.fromEntries(answer) } });
  }
  const wanted = { code: answer.get('code'), redirect_uri: app.redirect };
  return pkce ? { ...wanted, code_verifier: verifier } : wanted;
}

const codeTokens = async (code, app) => code.getToken(await authorize(code, app));

await run({
  async 'client credentials'() {
    const { token } = await new ClientCredentials(settings(APP)).getToken({ scope: ['read'] });
    assert.equal(token.expires_in, 7200);
    assert.equal(token.refresh_token, undefined);
    await admits(token.access_token, { scope: 'read' });
  },

  async 'client credentials, header'() {
    const { token } = await new ClientCredentials(settings(APP, 'header')).getToken({ scope: ['read', 'write'] });
    await admits(token.access_token, { scope: 'read write' });
  },

  async 'client credentials, encoded header'() {
    const asked = new ClientCredentials(settings(ENCODED, 'header')).getToken({});
    if (strict) {
      await admits((await asked).token.access_token);
    } else {
      // Kong does not decode what the library has encoded.
      await refused(asked, 'invalid_client');
    }
  },

  async 'wrong secret'() {
    const wrong = { ...APP, secret: 'wrong' };
    await refused(new ClientCredentials(settings(wrong)).getToken({}), 'invalid_client');
    await refused(new ClientCredentials(settings(wrong, 'header')).getToken({}), 'invalid_client');
  },

  async 'code with PKCE'() {
    const { token } = await codeTokens(codes(APP), APP);
    assert.ok(token.refresh_token);
    await admits(token.access_token, { user: 'bob', scope: 'read' });
  },

  async 'code with PKCE, public client'() {
    const { token } = await codeTokens(codes(PUBLIC), PUBLIC);
    await admits(token.access_token, { user: 'bob', scope: 'read' });
  },

  async 'code without PKCE'() {
    const code = codes(APP);
    const asked = authorize(code, APP, { pkce: false });
    if (strict) {
      await refused(asked, 'invalid_request');
    } else {
      const { token } = await code.getToken(await asked);
      await admits(token.access_token, { user: 'bob', scope: 'read' });
    }
  },

  async 'wrong verifier'() {
    const code = codes(APP);
    const parameters = await authorize(code, APP);
    parameters.code_verifier = randomBytes(32).toString('base64url');
    await refused(code.getToken(parameters), 'invalid_grant');
  },

  async 'wrong scope'() {
    await refused(authorize(codes(APP), APP, { scope: 'admin' }), 'invalid_scope');
  },

  async 'state and redirect URI that must be encoded'() {
    const code = codes(ENCODED);
    const parameters = await authorize(code, ENCODED, { state: 'a b+c%41&d=e#f?é' });
    const { token } = await code.getToken(parameters);
    await admits(token.access_token, { user: 'bob', scope: 'read' });
  },

  async 'code twice'() {
    const code = codes(APP);
    const parameters = await authorize(code, APP);
    const first = await code.getToken(parameters);
    await refused(code.getToken(parameters), INVALID_GRANT);
    if (strict) {
      await refused(first.refresh(), INVALID_GRANT);
    }
  },

  async password() {
    // The operator's back end has checked the user's password.
    const user = { username: 'bob', password: 'secret', authenticated_userid: 'bob' };
    const parameters = { ...user, scope: 'read', provision_key: 'the-login-page' };
    const asked = new ResourceOwnerPassword(settings(APP)).getToken(parameters);
    if (strict) {
      await refused(asked, 'unsupported_grant_type');
    } else {
      await admits((await asked).token.access_token, { user: 'bob', scope: 'read' });
    }
  },

  async refresh() {
    const first = await codeTokens(codes(APP), APP);
    const second = await first.refresh();
    assert.notEqual(second.token.refresh_token, first.token.refresh_token);
    await admits(second.token.access_token, { user: 'bob', scope: 'read' });
    if (!signed) {
      await refuses(first.token.access_token);
    }
  },

  async 'refresh, public client'() {
    const second = await (await codeTokens(codes(PUBLIC), PUBLIC)).refresh();
    await admits(second.token.access_token, { user: 'bob', scope: 'read' });
  },

  async 'refresh token twice'() {
    const first = await codeTokens(codes(APP), APP);
    const second = await first.refresh();
    await refused(first.refresh(), INVALID_GRANT);
    if (strict) {
      await refused(second.refresh(), INVALID_GRANT);
    } else {
      await admits((await second.refresh()).token.access_token, { user: 'bob', scope: 'read' });
    }
  },

  async revocation() {
    const tokens = await codeTokens(codes(APP), APP);
    await tokens.revokeAll();
    await refused(tokens.refresh(), INVALID_GRANT);
    if (!signed) {
      await refuses(tokens.token.access_token);
    }
  },

  async 'revocation, public client'() {
    // The library sends the empty secret of the client.
    const tokens = await codeTokens(codes(PUBLIC), PUBLIC);
    await tokens.revoke('refresh_token');
    await refused(tokens.refresh(), INVALID_GRANT);
  },
});
