// Cases of openid-client. It finds the endpoints by the metadata of the authorization server (RFC 8414).

import assert from 'node:assert/strict';
import * as oauth from 'oauth4webapi';
import * as client from 'openid-client';
import {
  APP, ENCODED, INVALID_GRANT, PUBLIC, admits, issuer, login, refuses, run, signed, strict,
} from './common.mjs';

function discover(app, authentication, server = issuer) {
  return client.discovery(new URL(server), app.id, {}, authentication, { algorithm: 'oauth2' });
}

const confidential = () => discover(APP, client.ClientSecretPost(APP.secret));

/** Whether the request of the library was refused with this error. */
function refused(promise, error) {
  return assert.rejects(promise, (thrown) => {
    assert.equal(thrown.error, error);
    return true;
  });
}

/** Sends the user to the login page, and returns the URL that the browser comes back to and what belongs to it. */
async function authorize(config, app, { pkce = true, scope = 'read', state, server } = {}) {
  const pkceCodeVerifier = pkce ? client.randomPKCECodeVerifier() : undefined;
  const expectedState = state ?? client.randomState();
  const parameters = { redirect_uri: app.redirect, scope, state: expectedState };
  if (pkce) {
    parameters.code_challenge = await client.calculatePKCECodeChallenge(pkceCodeVerifier);
    parameters.code_challenge_method = 'S256';
  }
  const url = await login(client.buildAuthorizationUrl(config, parameters), server);
  return { url, checks: { pkceCodeVerifier, expectedState } };
}

async function codeTokens(config, app, options) {
  const { url, checks } = await authorize(config, app, options);
  return client.authorizationCodeGrant(config, url, checks);
}

async function validate(config, server, token, service) {
  const headers = { authorization: `Bearer ${token}` };
  const request = new Request(`${server}/resource`, { headers });
  return oauth.validateJwtAccessToken(config.serverMetadata(), request, service);
}

await run({
  async metadata() {
    const found = (await confidential()).serverMetadata();
    assert.equal(found.issuer, issuer);
    assert.equal(found.token_endpoint, `${issuer}/oauth2/token`);
    assert.equal(found.introspection_endpoint, `${issuer}/oauth2/introspect`);
    assert.equal(found.revocation_endpoint, `${issuer}/oauth2/revoke`);
    assert.equal(found.jwks_uri, signed ? `${issuer}/oauth2/jwks` : undefined);
    assert.equal(found.grant_types_supported.includes('implicit'), !strict);
    assert.equal(found.grant_types_supported.includes('password'), !strict);
  },

  async 'client credentials'() {
    const tokens = await client.clientCredentialsGrant(await confidential(), { scope: 'read' });
    assert.equal(tokens.token_type, 'bearer');
    assert.equal(tokens.expires_in, 7200);
    assert.equal(tokens.refresh_token, undefined);
    await admits(tokens.access_token, { scope: 'read' });
  },

  async 'client credentials, header'() {
    const config = await discover(APP, client.ClientSecretBasic(APP.secret));
    const tokens = await client.clientCredentialsGrant(config, { scope: 'write' });
    await admits(tokens.access_token, { scope: 'write' });
  },

  async 'client credentials, encoded header'() {
    const config = await discover(ENCODED, client.ClientSecretBasic(ENCODED.secret));
    if (!strict) {
      // Kong does not decode what the library has encoded.
      await refused(client.clientCredentialsGrant(config), 'invalid_client');
      return;
    }
    const tokens = await client.clientCredentialsGrant(config);
    await admits(tokens.access_token);
  },

  async 'wrong secret'() {
    const config = await discover(APP, client.ClientSecretPost('wrong'));
    await refused(client.clientCredentialsGrant(config), 'invalid_client');
  },

  async 'code with PKCE'() {
    const tokens = await codeTokens(await confidential(), APP);
    assert.ok(tokens.refresh_token);
    await admits(tokens.access_token, { user: 'bob', scope: 'read' });
  },

  async 'code with PKCE, public client'() {
    const tokens = await codeTokens(await discover(PUBLIC, client.None()), PUBLIC);
    await admits(tokens.access_token, { user: 'bob', scope: 'read' });
  },

  async 'code without PKCE'() {
    const config = await confidential();
    const { url, checks } = await authorize(config, APP, { pkce: false });
    const tokens = client.authorizationCodeGrant(config, url, checks);
    if (strict) {
      await refused(tokens, 'invalid_request');
    } else {
      await admits((await tokens).access_token, { user: 'bob', scope: 'read' });
    }
  },

  async 'wrong verifier'() {
    const config = await confidential();
    const { url, checks } = await authorize(config, APP);
    const wrong = { ...checks, pkceCodeVerifier: client.randomPKCECodeVerifier() };
    await refused(client.authorizationCodeGrant(config, url, wrong), 'invalid_grant');
  },

  async 'wrong scope'() {
    const config = await confidential();
    const { url, checks } = await authorize(config, APP, { scope: 'admin' });
    await refused(client.authorizationCodeGrant(config, url, checks), 'invalid_scope');
  },

  async 'state that must be encoded'() {
    // The library has no redirect URIs with a query.
    const tokens = await codeTokens(await confidential(), APP, { state: 'a b+c%41&d=e#f?é' });
    await admits(tokens.access_token, { user: 'bob', scope: 'read' });
  },

  async 'code of another server'() {
    const config = await confidential();
    const { url, checks } = await authorize(config, APP, { server: `${issuer}-rsa` });
    const tokens = client.authorizationCodeGrant(config, url, checks);
    // The library itself notices it by `iss` (RFC 9207).
    await assert.rejects(tokens, { code: 'OAUTH_INVALID_RESPONSE' });
  },

  async 'code twice'() {
    const config = await confidential();
    const { url, checks } = await authorize(config, APP);
    const tokens = await client.authorizationCodeGrant(config, url, checks);
    await refused(client.authorizationCodeGrant(config, url, checks), INVALID_GRANT);
    if (strict) {
      await refused(client.refreshTokenGrant(config, tokens.refresh_token), INVALID_GRANT);
    }
    if (strict && !signed) {
      await refuses(tokens.access_token);
    } else {
      await admits(tokens.access_token, { user: 'bob', scope: 'read' });
    }
  },

  async password() {
    const config = await confidential();
    // The operator's back end has checked the user's password.
    const parameters = { scope: 'read', provision_key: 'the-login-page', authenticated_userid: 'bob' };
    const tokens = client.genericGrantRequest(config, 'password', parameters);
    if (strict) {
      await refused(tokens, 'unsupported_grant_type');
    } else {
      await admits((await tokens).access_token, { user: 'bob', scope: 'read' });
    }
  },

  async refresh() {
    const config = await confidential();
    const first = await codeTokens(config, APP);
    const second = await client.refreshTokenGrant(config, first.refresh_token);
    assert.notEqual(second.refresh_token, first.refresh_token);
    await admits(second.access_token, { user: 'bob', scope: 'read' });
    if (!signed) {
      await refuses(first.access_token);
    }
  },

  async 'refresh with another scope'() {
    const config = await confidential();
    const first = await codeTokens(config, APP, { scope: 'read write' });
    assert.equal(first.scope, strict ? 'read write' : undefined);
    const second = await client.refreshTokenGrant(config, first.refresh_token, { scope: 'read' });
    await admits(second.access_token, { user: 'bob', scope: 'read write' });
    // The token opens more than the client has asked for. Kong does not tell it.
    assert.equal(second.scope, strict ? 'read write' : undefined);
  },

  async 'refresh, public client'() {
    const config = await discover(PUBLIC, client.None());
    const first = await codeTokens(config, PUBLIC);
    const second = await client.refreshTokenGrant(config, first.refresh_token);
    await admits(second.access_token, { user: 'bob', scope: 'read' });
  },

  async 'refresh token twice'() {
    const config = await confidential();
    const first = await codeTokens(config, APP);
    const second = await client.refreshTokenGrant(config, first.refresh_token);
    await refused(client.refreshTokenGrant(config, first.refresh_token), INVALID_GRANT);
    const third = client.refreshTokenGrant(config, second.refresh_token);
    if (strict) {
      await refused(third, INVALID_GRANT);
    } else {
      await admits((await third).access_token, { user: 'bob', scope: 'read' });
    }
  },

  async introspection() {
    const config = await confidential();
    const tokens = await codeTokens(config, APP);
    const access = await client.tokenIntrospection(config, tokens.access_token);
    assert.equal(access.active, true);
    assert.deepEqual(
      [access.client_id, access.username, access.sub, access.scope, access.iss, access.token_type.toLowerCase()],
      [APP.id, 'bob', 'bob', 'read', issuer, 'bearer'],
    );
    assert.ok(access.exp - access.iat === 7200);
    const refresh = await client.tokenIntrospection(config, tokens.refresh_token, { token_type_hint: 'refresh_token' });
    assert.equal(refresh.active, true);
    assert.equal((await client.tokenIntrospection(config, 'unknown')).active, false);
    const other = await discover(ENCODED, client.ClientSecretPost(ENCODED.secret));
    assert.deepEqual(await client.tokenIntrospection(other, tokens.access_token), { active: false });
  },

  async revocation() {
    const config = await confidential();
    const tokens = await codeTokens(config, APP);
    await client.tokenRevocation(config, tokens.refresh_token, { token_type_hint: 'refresh_token' });
    await refused(client.refreshTokenGrant(config, tokens.refresh_token), INVALID_GRANT);
    if (!signed) {
      await refuses(tokens.access_token);
      assert.equal((await client.tokenIntrospection(config, tokens.access_token)).active, false);
    }
    await client.tokenRevocation(config, 'unknown');
  },

  async 'revocation, public client'() {
    const config = await discover(PUBLIC, client.None());
    const tokens = await codeTokens(config, PUBLIC);
    await client.tokenRevocation(config, tokens.access_token);
    await refused(client.refreshTokenGrant(config, tokens.refresh_token), INVALID_GRANT);
  },

  async 'signed access token'() {
    const servers = [
      [issuer, '00000000-0000-4000-8000-00000000e256', 'ES256'],
      [`${issuer}-rsa`, '00000000-0000-4000-8000-00000000a256', 'RS256'],
    ];
    for (const [server, service, algorithm] of servers) {
      const config = await discover(APP, client.ClientSecretPost(APP.secret), server);
      const tokens = await codeTokens(config, APP, { server });
      const claims = await validate(config, server, tokens.access_token, service);
      assert.deepEqual([claims.sub, claims.client_id, claims.scope], ['bob', APP.id, 'read']);
      const header = JSON.parse(Buffer.from(tokens.access_token.split('.')[0], 'base64url'));
      assert.deepEqual([header.alg, header.typ], [algorithm, 'at+jwt']);
      await assert.rejects(validate(config, server, tokens.access_token, 'another-service'));
    }
  },

  async 'wrong access token'() {
    const config = await confidential();
    const asked = client.fetchProtectedResource(config, 'wrong', new URL(`${issuer}/resource`), 'GET');
    await assert.rejects(asked, (thrown) => {
      const [{ scheme, parameters }] = thrown.cause;
      assert.deepEqual([scheme, parameters.error], ['bearer', 'invalid_token']);
      return true;
    });
  },
});
