"""Cases of requests-oauthlib."""

from oauthlib.oauth2 import BackendApplicationClient, LegacyApplicationClient, MobileApplicationClient
from requests.auth import HTTPBasicAuth
from requests_oauthlib import OAuth2Session

from common import (
    APP, ENCODED, INVALID_GRANT, LOGIN, PASSWORD, PUBLIC, SIGNED, STRICT, TOKEN,
    Refused, error_in, login, opens, refuses, run,
)



def secret(app):
    """What belongs to each request for a token. A public client names itself only."""
    return {"client_secret": app.secret, "include_client_id": True} if app.secret else {"include_client_id": True}


def authorize(app=APP, scope="read", pkce="S256", state=None):
    """Sends the user to the login page. Returns the session and the URL that the browser comes back to."""
    session = OAuth2Session(app.id, redirect_uri=app.redirect, scope=[scope], pkce=pkce, state=state)
    url, _ = session.authorization_url(LOGIN)
    return session, login(url)


def code_session(app=APP):
    session, url = authorize(app)
    session.fetch_token(TOKEN, authorization_response=url, **secret(app))
    return session


def renew(session, app=APP, **parameters):
    body = {"client_id": app.id}
    if app.secret:
        body["client_secret"] = app.secret
    return session.refresh_token(TOKEN, **body, **parameters)


def client_credentials(app=APP, **parameters):
    session = OAuth2Session(client=BackendApplicationClient(app.id, scope=["read"]))
    token = session.fetch_token(TOKEN, **parameters)
    assert "refresh_token" not in token and token["expires_in"] == 7200
    opens(session, scope="read")


def wrong_secret():
    with Refused("invalid_client"):
        client_credentials(client_secret="wrong", include_client_id=True)
    with Refused("invalid_client"):
        client_credentials(auth=HTTPBasicAuth(APP.id, "wrong"))


def code(app):
    session = code_session(app)
    assert session.token["refresh_token"]
    opens(session, user="bob", scope="read")


def code_header():
    """By default the library sends the id and the secret in the header."""
    session, url = authorize()
    session.fetch_token(TOKEN, authorization_response=url, client_secret=APP.secret)
    opens(session, user="bob", scope="read")


def code_public_header():
    """By default the library sends a public client's id in the header, with an empty secret."""
    session, url = authorize(PUBLIC)
    session.fetch_token(TOKEN, authorization_response=url)
    opens(session, user="bob", scope="read")


def code_without_pkce():
    session, url = authorize(pkce=None)
    if STRICT:
        with Refused("invalid_request"):
            session.fetch_token(TOKEN, authorization_response=url, **secret(APP))
    else:
        session.fetch_token(TOKEN, authorization_response=url, **secret(APP))
        opens(session, user="bob", scope="read")


def wrong_verifier():
    session, url = authorize()
    session.authorization_url(LOGIN, state=session._state)  # The session has another verifier now.
    with Refused("invalid_grant"):
        session.fetch_token(TOKEN, authorization_response=url, **secret(APP))


def wrong_scope():
    session, url = authorize(scope="admin")
    with Refused("invalid_scope"):
        session.fetch_token(TOKEN, authorization_response=url, **secret(APP))


def encoded():
    session, url = authorize(ENCODED, state="a b+c%41&d=e#f?é")
    session.fetch_token(TOKEN, authorization_response=url, **secret(ENCODED))
    opens(session, user="bob", scope="read")


def code_twice():
    session, url = authorize()
    first = session.fetch_token(TOKEN, authorization_response=url, **secret(APP))
    with Refused(INVALID_GRANT):
        session.fetch_token(TOKEN, authorization_response=url, **secret(APP))
    if STRICT:
        with Refused(INVALID_GRANT):
            renew(session, refresh_token=first["refresh_token"])


def implicit():
    client = MobileApplicationClient(APP.id)
    session = OAuth2Session(client=client, redirect_uri=APP.redirect, scope=["read"])
    url, _ = session.authorization_url(LOGIN)
    back = login(url)
    if STRICT:
        # The library reads the fragment only, where an answer to this grant would be.
        assert error_in(back) == "unsupported_response_type"
    else:
        session.token_from_fragment(back)
        opens(session, user="bob", scope="read")


def password():
    session = OAuth2Session(client=LegacyApplicationClient(APP.id), scope=["read"])
    wanted = {"username": "bob", "password": "secret", "scope": "read", **PASSWORD}
    if STRICT:
        with Refused("unsupported_grant_type"):
            session.fetch_token(TOKEN, **wanted, **secret(APP))
    else:
        session.fetch_token(TOKEN, **wanted, **secret(APP))
        opens(session, user="bob", scope="read")


def refresh(app):
    session = code_session(app)
    first = dict(session.token)
    second = renew(session, app)
    assert second["refresh_token"] != first["refresh_token"]
    opens(session, user="bob", scope="read")
    if not SIGNED:
        refuses(first["access_token"])


def refresh_by_itself():
    """The library refreshes an expired token when it is used."""
    told = []
    expired = dict(code_session().token) | {"expires_in": -1, "expires_at": 1}
    session = OAuth2Session(
        APP.id,
        token=expired,
        auto_refresh_url=TOKEN,
        auto_refresh_kwargs={"client_id": APP.id, "client_secret": APP.secret},
        token_updater=told.append,
    )
    opens(session, user="bob", scope="read")
    assert len(told) == 1 and told[0]["access_token"] != expired["access_token"]


def refresh_twice():
    session = code_session()
    first = session.token["refresh_token"]
    second = renew(session)["refresh_token"]
    with Refused(INVALID_GRANT):
        renew(session, refresh_token=first)
    if STRICT:
        with Refused(INVALID_GRANT):
            renew(session, refresh_token=second)
    else:
        renew(session, refresh_token=second)
        opens(session, user="bob", scope="read")


run({
    "client credentials": lambda: client_credentials(client_secret=APP.secret, include_client_id=True),
    "client credentials, header": lambda: client_credentials(client_secret=APP.secret),
    # This library does not encode the id and the secret.
    "client credentials, encoded header": lambda: client_credentials(ENCODED, client_secret=ENCODED.secret),
    "wrong secret": wrong_secret,
    "code with PKCE": lambda: code(APP),
    "code with PKCE, header": code_header,
    "code with PKCE, public client": lambda: code(PUBLIC),
    "code with PKCE, public client, header": code_public_header,
    "code without PKCE": code_without_pkce,
    "wrong verifier": wrong_verifier,
    "wrong scope": wrong_scope,
    "state and redirect URI that must be encoded": encoded,
    "code twice": code_twice,
    "implicit": implicit,
    "password": password,
    "refresh": lambda: refresh(APP),
    "refresh, public client": lambda: refresh(PUBLIC),
    "refresh of an expired token": refresh_by_itself,
    "refresh token twice": refresh_twice,
})
