"""Cases of oauthlib. The library prepares requests and reads responses. The requests are sent as they are."""

from types import SimpleNamespace

import requests
from oauthlib.oauth2 import (
    BackendApplicationClient, LegacyApplicationClient, MobileApplicationClient, WebApplicationClient,
)

from common import (
    APP, ENCODED, INVALID_GRANT, LOGIN, PASSWORD, PUBLIC, REVOKE, SIGNED, STRICT, TOKEN,
    Refused, error_in, login, opens, refuses, run,
)


def send(client, prepared):
    """Sends a request for a token, and lets the library read the response."""
    url, headers, body = prepared
    return client.parse_request_body_response(requests.post(url, body, headers=headers).text)


def session(client):
    """A session that adds the token as the library says."""

    def get(url):
        url, headers, body = client.add_token(url)
        return requests.get(url, headers=headers, data=body)

    return SimpleNamespace(get=get)


def secret(app):
    return {"client_secret": app.secret} if app.secret else {}


def authorize(app=APP, scope="read", pkce=True, state=None):
    """Sends the user to the login page. Returns the client and the URL that the browser comes back to."""
    client = WebApplicationClient(app.id, redirect_url=app.redirect)
    wanted = {}
    if pkce:
        client.create_code_verifier(64)
        challenge = client.create_code_challenge(client.code_verifier, "S256")
        wanted = {"code_challenge": challenge, "code_challenge_method": "S256"}
    url, _, _ = client.prepare_authorization_request(LOGIN, state=state, scope=scope, **wanted)
    return client, login(url)


def exchange(client, url, app=APP, verifier=None):
    verifier = verifier or client.code_verifier
    wanted = {"authorization_response": url, "code_verifier": verifier}
    return send(client, client.prepare_token_request(TOKEN, **wanted, **secret(app)))


def code_client(app=APP):
    client, url = authorize(app)
    exchange(client, url, app)
    return client


def renew(client, app=APP, refresh_token=None):
    wanted = {"refresh_token": refresh_token, "client_id": app.id}
    return send(client, client.prepare_refresh_token_request(TOKEN, **wanted, **secret(app)))


def client_credentials():
    client = BackendApplicationClient(APP.id, scope="read")
    token = send(client, client.prepare_token_request(TOKEN, include_client_id=True, **secret(APP)))
    assert "refresh_token" not in token and token["expires_in"] == 7200
    opens(session(client), scope="read")


def wrong_secret():
    client = BackendApplicationClient(APP.id)
    wanted = {"include_client_id": True, "client_secret": "wrong"}
    with Refused("invalid_client"):
        send(client, client.prepare_token_request(TOKEN, **wanted))


def code(app):
    client = code_client(app)
    assert client.refresh_token
    opens(session(client), user="bob", scope="read")


def code_without_pkce():
    client, url = authorize(pkce=False)
    if STRICT:
        with Refused("invalid_request"):
            exchange(client, url)
    else:
        exchange(client, url)
        opens(session(client), user="bob", scope="read")


def wrong_verifier():
    client, url = authorize()
    with Refused("invalid_grant"):
        exchange(client, url, verifier=WebApplicationClient(APP.id).create_code_verifier(64))


def wrong_scope():
    client, url = authorize(scope="admin")
    with Refused("invalid_scope"):
        exchange(client, url)


def encoded():
    client, url = authorize(ENCODED, state="a b+c%41&d=e#f?é")
    exchange(client, url, ENCODED)
    opens(session(client), user="bob", scope="read")


def code_twice():
    client, url = authorize()
    exchange(client, url)
    with Refused(INVALID_GRANT):
        exchange(client, url)
    if STRICT:
        with Refused(INVALID_GRANT):
            renew(client)


def implicit():
    client = MobileApplicationClient(APP.id, redirect_url=APP.redirect)
    url, _, _ = client.prepare_authorization_request(LOGIN, scope="read")
    back = login(url)
    if STRICT:
        # The library reads the fragment only, where an answer to this grant would be.
        assert error_in(back) == "unsupported_response_type"
    else:
        client.parse_request_uri_response(back, state=client.state, scope="read")
        opens(session(client), user="bob", scope="read")


def password():
    client = LegacyApplicationClient(APP.id)
    wanted = {"username": "bob", "password": "secret", "scope": "read", "include_client_id": True}
    prepared = client.prepare_token_request(TOKEN, **wanted, **secret(APP), **PASSWORD)
    if STRICT:
        with Refused("unsupported_grant_type"):
            send(client, prepared)
    else:
        send(client, prepared)
        opens(session(client), user="bob", scope="read")


def refresh(app):
    client = code_client(app)
    access_token, refresh_token = client.access_token, client.refresh_token
    renew(client, app)
    assert client.refresh_token != refresh_token
    opens(session(client), user="bob", scope="read")
    if not SIGNED:
        refuses(access_token)


def refresh_twice():
    client = code_client()
    first = client.refresh_token
    renew(client)
    with Refused(INVALID_GRANT):
        renew(client, refresh_token=first)
    if STRICT:
        with Refused(INVALID_GRANT):
            renew(client)
    else:
        renew(client)
        opens(session(client), user="bob", scope="read")


def revocation(app):
    client = code_client(app)
    wanted = {"token_type_hint": "refresh_token", "client_id": app.id, **secret(app)}
    url, headers, body = client.prepare_token_revocation_request(REVOKE, client.refresh_token, **wanted)
    assert requests.post(url, body, headers=headers).status_code == 200
    with Refused(INVALID_GRANT):
        renew(client, app)
    if not SIGNED:
        refuses(client.access_token)


run({
    "client credentials": client_credentials,
    "wrong secret": wrong_secret,
    "code with PKCE": lambda: code(APP),
    "code with PKCE, public client": lambda: code(PUBLIC),
    "code without PKCE": code_without_pkce,
    "wrong verifier": wrong_verifier,
    "wrong scope": wrong_scope,
    "state and redirect URI that must be encoded": encoded,
    "code twice": code_twice,
    "implicit": implicit,
    "password": password,
    "refresh": lambda: refresh(APP),
    "refresh, public client": lambda: refresh(PUBLIC),
    "refresh token twice": refresh_twice,
    "revocation": lambda: revocation(APP),
    "revocation, public client": lambda: revocation(PUBLIC),
})
