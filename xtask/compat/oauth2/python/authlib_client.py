"""Cases of Authlib."""

from authlib.common.security import generate_token
from authlib.integrations.requests_client import OAuth2Session
from authlib.oauth2.rfc6750.errors import InvalidTokenError
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata, get_well_known_url
from authlib.oauth2.rfc9068 import JWTBearerTokenValidator
from joserfc.jwk import KeySet
import requests

from common import (
    APP, ENCODED, INTROSPECT, INVALID_GRANT, ISSUER, LOGIN, PASSWORD, PUBLIC, REVOKE, SIGNED, STRICT, TOKEN,
    Refused, error_in, login, opens, refuses, run,
)


def session(app=APP, scope="read", **settings):
    return OAuth2Session(
        app.id,
        app.secret,
        scope=scope,
        redirect_uri=app.redirect,
        code_challenge_method="S256",
        token_endpoint=TOKEN,
        **settings,
    )


def authorize(client, pkce=True):
    """Sends the user to the login page. Returns the URL that the browser comes back to and the other parameters."""
    verifier = {"code_verifier": generate_token(48)} if pkce else {}
    url, client.state = client.create_authorization_url(LOGIN, **verifier)
    return login(url), verifier


def code_session(app=APP):
    client = session(app)
    url, verifier = authorize(client)
    client.fetch_token(TOKEN, authorization_response=url, **verifier)
    return client


def metadata(issuer):
    url = get_well_known_url(issuer, external=True)
    found = AuthorizationServerMetadata(requests.get(url).json())
    found.validate()
    assert found["issuer"] == issuer
    return found


def metadata_case():
    found = metadata(ISSUER)
    assert found["token_endpoint"] == TOKEN
    assert found["authorization_response_iss_parameter_supported"] == STRICT
    assert ("jwks_uri" in found) == SIGNED


def client_credentials(method, app=APP):
    client = session(app, token_endpoint_auth_method=method)
    token = client.fetch_token(TOKEN, grant_type="client_credentials")
    assert "refresh_token" not in token and token["expires_in"] == 7200
    opens(client, scope="read")


def wrong_secret():
    for method in ("client_secret_post", "client_secret_basic"):
        client = session(APP._replace(secret="wrong"), token_endpoint_auth_method=method)
        with Refused("invalid_client"):
            client.fetch_token(TOKEN, grant_type="client_credentials")


def code(app):
    client = code_session(app)
    assert client.token["refresh_token"]
    opens(client, user="bob", scope="read")


def code_without_pkce():
    client = session()
    url, _ = authorize(client, pkce=False)
    if STRICT:
        # The library does not read errors in this URL.
        assert error_in(url) == "invalid_request"
    else:
        client.fetch_token(TOKEN, authorization_response=url)
        opens(client, user="bob", scope="read")


def wrong_verifier():
    client = session()
    url, _ = authorize(client)
    with Refused("invalid_grant"):
        client.fetch_token(TOKEN, authorization_response=url, code_verifier=generate_token(48))


def encoded():
    client = session(ENCODED, token_endpoint_auth_method="client_secret_post")
    verifier = {"code_verifier": generate_token(48)}
    url, client.state = client.create_authorization_url(LOGIN, state="a b+c%41&d=e#f?é", **verifier)
    client.fetch_token(TOKEN, authorization_response=login(url), **verifier)
    opens(client, user="bob", scope="read")


def code_twice():
    client = session()
    url, verifier = authorize(client)
    first = client.fetch_token(TOKEN, authorization_response=url, **verifier)
    with Refused(INVALID_GRANT):
        client.fetch_token(TOKEN, authorization_response=url, **verifier)
    if STRICT:
        with Refused(INVALID_GRANT):
            client.refresh_token(TOKEN, refresh_token=first["refresh_token"])


def implicit():
    client = session()
    url, state = client.create_authorization_url(LOGIN, response_type="token")
    back = login(url)
    if STRICT:
        assert error_in(back) == "unsupported_response_type"
    else:
        token = client.fetch_token(authorization_response=back, state=state)
        assert "refresh_token" not in token
        opens(client, user="bob", scope="read")


def password():
    client = session()
    wanted = {"username": "bob", "password": "secret", **PASSWORD}
    if STRICT:
        with Refused("unsupported_grant_type"):
            client.fetch_token(TOKEN, **wanted)
    else:
        client.fetch_token(TOKEN, scope="read", **wanted)
        opens(client, user="bob", scope="read")


def refresh(app):
    client = code_session(app)
    first = dict(client.token)
    second = client.refresh_token(TOKEN)
    assert second["refresh_token"] != first["refresh_token"]
    opens(client, user="bob", scope="read")
    if not SIGNED:
        refuses(first["access_token"])


def refresh_by_itself():
    """The library refreshes an expired token when it is used."""
    client = code_session()
    first = client.token["access_token"]
    client.token = client.token | {"expires_at": 1}
    opens(client, user="bob", scope="read")
    assert client.token["access_token"] != first


def refresh_twice():
    client = code_session()
    first = client.token["refresh_token"]
    client.refresh_token(TOKEN)
    with Refused(INVALID_GRANT):
        client.refresh_token(TOKEN, refresh_token=first)
    if STRICT:
        with Refused(INVALID_GRANT):
            client.refresh_token(TOKEN)
    else:
        client.refresh_token(TOKEN)
        opens(client, user="bob", scope="read")


def introspection():
    client = code_session()
    found = client.introspect_token(INTROSPECT, client.token["access_token"], "access_token").json()
    assert found["active"] is True
    assert (found["client_id"], found["username"], found["scope"]) == ("app", "bob", "read")
    assert found["exp"] - found["iat"] == 7200
    found = client.introspect_token(INTROSPECT, client.token["refresh_token"], "refresh_token").json()
    assert found["active"] is True
    assert client.introspect_token(INTROSPECT, "unknown").json() == {"active": False}
    other = session(ENCODED, token_endpoint_auth_method="client_secret_post")
    assert other.introspect_token(INTROSPECT, client.token["access_token"]).json() == {"active": False}
    wrong = session(APP._replace(secret="wrong"))
    assert wrong.introspect_token(INTROSPECT, client.token["access_token"]).status_code == 401


def revocation(app):
    client = code_session(app)
    access_token, refresh_token = client.token["access_token"], client.token["refresh_token"]
    assert client.revoke_token(REVOKE, refresh_token, "refresh_token").status_code == 200
    with Refused(INVALID_GRANT):
        client.refresh_token(TOKEN, refresh_token=refresh_token)
    if not SIGNED:
        refuses(access_token)
    assert client.revoke_token(REVOKE, "unknown").status_code == 200


class Validator(JWTBearerTokenValidator):
    """A resource server that checks tokens with the keys of the authorization server."""

    def get_jwks(self):
        return KeySet.import_key_set(requests.get(metadata(self.issuer)["jwks_uri"]).json())


def signed():
    for issuer, service in (
        (ISSUER, "00000000-0000-4000-8000-00000000e256"),
        (ISSUER + "-rsa", "00000000-0000-4000-8000-00000000a256"),
    ):
        client = session()
        client.fetch_token(issuer + "/oauth2/token", grant_type="client_credentials")
        text = client.token["access_token"]
        validator = Validator(issuer, service)
        token = validator.authenticate_token(text)
        validator.validate_token(token, ["read"], None)
        assert token["sub"] == token["client_id"] == "app"
        other = Validator(issuer, "another-service")
        try:
            other.validate_token(other.authenticate_token(text), [], None)
        except InvalidTokenError:
            continue
        raise AssertionError("the token is valid for another service")


run({
    "metadata": metadata_case,
    "client credentials": lambda: client_credentials("client_secret_post"),
    "client credentials, header": lambda: client_credentials("client_secret_basic"),
    # This library does not encode the id and the secret.
    "client credentials, encoded header": lambda: client_credentials("client_secret_basic", ENCODED),
    "wrong secret": wrong_secret,
    "code with PKCE": lambda: code(APP),
    "code with PKCE, public client": lambda: code(PUBLIC),
    "code without PKCE": code_without_pkce,
    "wrong verifier": wrong_verifier,
    "state and redirect URI that must be encoded": encoded,
    "code twice": code_twice,
    "implicit": implicit,
    "password": password,
    "refresh": lambda: refresh(APP),
    "refresh, public client": lambda: refresh(PUBLIC),
    "refresh of an expired token": refresh_by_itself,
    "refresh token twice": refresh_twice,
    "introspection": introspection,
    "revocation": lambda: revocation(APP),
    "revocation, public client": lambda: revocation(PUBLIC),
    "signed access token": signed,
})
