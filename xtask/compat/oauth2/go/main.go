// Cases of golang.org/x/oauth2, for `cargo xtask compat oauth2`. `keys DIRECTORY` makes the keys and certificates of
// the suite. `cases NAME...` runs cases and prints a line in JSON for each.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

var (
	way        = os.Getenv("OAUTH2_WAY")
	issuer     = os.Getenv("OAUTH2_SERVER") + "/" + way
	strict     = way != "kong"
	signed     = way == "signed"
	background = context.Background()
)

type app struct{ id, secret, redirect string }

var (
	confidential = app{"app", "TheSecretOfTheApp", "https://app.example.org/callback"}
	public       = app{"public-app", "", "https://public.example.org/callback"}
	encoded      = app{"app-2.example", "a+b %41/c=d&e~f!g*h", "https://app.example.org/back?tenant=7&area=a-b"}
)

const state = "a b+c%41&d=e#f?é"

// invalidGrant is the error for unusable codes and refresh tokens. Kong calls it invalid_request.
func invalidGrant() string {
	if strict {
		return "invalid_grant"
	}
	return "invalid_request"
}

var cases = map[string]func() error{
	"client credentials": func() error {
		return clientCredentials(confidential, oauth2.AuthStyleInParams)
	},
	"client credentials, header": func() error {
		return clientCredentials(confidential, oauth2.AuthStyleInHeader)
	},
	"client credentials, encoded header": func() error {
		err := clientCredentials(encoded, oauth2.AuthStyleInHeader)
		if strict {
			return err
		}
		// Kong does not decode what the library has encoded.
		return refused(err, "invalid_client")
	},
	"client credentials, detected": func() error {
		return clientCredentials(confidential, oauth2.AuthStyleAutoDetect)
	},
	"wrong secret": func() error {
		wrong := app{confidential.id, "wrong", ""}
		return errors.Join(
			refused(clientCredentials(wrong, oauth2.AuthStyleInParams), "invalid_client"),
			refused(clientCredentials(wrong, oauth2.AuthStyleInHeader), "invalid_client"),
		)
	},
	"code with PKCE":                func() error { return codeWithPKCE(confidential) },
	"code with PKCE, public client": func() error { return codeWithPKCE(public) },
	"code without PKCE": func() error {
		token, err := codeToken(config(confidential), "")
		if strict {
			return refused(err, "invalid_request")
		}
		return opens(token, err)
	},
	"wrong verifier": func() error {
		config := config(confidential)
		code, err := authorize(config, oauth2.GenerateVerifier())
		if err != nil {
			return err
		}
		_, err = config.Exchange(background, code, oauth2.VerifierOption(oauth2.GenerateVerifier()))
		return refused(err, "invalid_grant")
	},
	"wrong scope": func() error {
		config := config(confidential)
		config.Scopes = []string{"admin"}
		_, err := authorize(config, oauth2.GenerateVerifier())
		return refused(err, "invalid_scope")
	},
	"state and redirect URI that must be encoded": func() error {
		config := config(encoded)
		config.Endpoint.AuthStyle = oauth2.AuthStyleInParams
		return opens(codeToken(config, oauth2.GenerateVerifier()))
	},
	"code twice":                  codeTwice,
	"password":                    password,
	"refresh":                     func() error { return refresh(confidential) },
	"refresh, public client":      func() error { return refresh(public) },
	"refresh of an expired token": refreshByItself,
	"refresh token twice":         refreshTwice,
}

func config(of app) *oauth2.Config {
	return &oauth2.Config{
		ClientID:     of.id,
		ClientSecret: of.secret,
		RedirectURL:  of.redirect,
		Scopes:       []string{"read"},
		Endpoint: oauth2.Endpoint{
			AuthURL:  "https://login.example.org/authorize",
			TokenURL: issuer + "/oauth2/token",
		},
	}
}

func clientCredentials(of app, style oauth2.AuthStyle) error {
	config := clientcredentials.Config{
		ClientID:     of.id,
		ClientSecret: of.secret,
		TokenURL:     issuer + "/oauth2/token",
		Scopes:       []string{"read", "write"},
		AuthStyle:    style,
	}
	return call(config.Client(background), http.StatusOK, "", "read write")
}

func codeWithPKCE(of app) error {
	token, err := codeToken(config(of), oauth2.GenerateVerifier())
	if err == nil && token.RefreshToken == "" {
		return errors.New("there is no refresh token")
	}
	return opens(token, err)
}

func codeTwice() error {
	config, verifier := config(confidential), oauth2.GenerateVerifier()
	code, err := authorize(config, verifier)
	if err != nil {
		return err
	}
	token, err := config.Exchange(background, code, oauth2.VerifierOption(verifier))
	if err != nil {
		return err
	}
	_, err = config.Exchange(background, code, oauth2.VerifierOption(verifier))
	if err := refused(err, invalidGrant()); err != nil || !strict {
		return err
	}
	_, err = renew(config, token)
	return refused(err, invalidGrant())
}

// password gets a token for a user whose password the operator's back end has checked. The library sends no parameters
// of others, so that the back end adds them on the way.
func password() error {
	backEnd := &http.Client{Transport: backEnd{}}
	token, err := config(confidential).PasswordCredentialsToken(
		context.WithValue(background, oauth2.HTTPClient, backEnd), "bob", "secret")
	if strict {
		return refused(err, "unsupported_grant_type")
	}
	return opens(token, err)
}

type backEnd struct{}

func (backEnd) RoundTrip(request *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, err
	}
	form.Set("authenticated_userid", form.Get("username"))
	form.Set("provision_key", "the-login-page")
	text := form.Encode()
	request = request.Clone(request.Context())
	request.ContentLength = int64(len(text))
	request.Body = io.NopCloser(strings.NewReader(text))
	return http.DefaultTransport.RoundTrip(request)
}

func refresh(of app) error {
	config := config(of)
	first, err := codeToken(config, oauth2.GenerateVerifier())
	if err != nil {
		return err
	}
	second, err := renew(config, first)
	if err != nil {
		return err
	}
	if second.RefreshToken == first.RefreshToken {
		return errors.New("the refresh token has stayed the same")
	}
	if !signed {
		if err := call(bearer(first), http.StatusUnauthorized, "", ""); err != nil {
			return err
		}
	}
	return opens(second, nil)
}

// refreshByItself lets the library refresh a token that has expired when it is used.
func refreshByItself() error {
	config := config(confidential)
	token, err := codeToken(config, oauth2.GenerateVerifier())
	if err != nil {
		return err
	}
	token.Expiry = time.Now().Add(-time.Minute)
	return call(config.Client(background, token), http.StatusOK, "bob", "read")
}

func refreshTwice() error {
	config := config(confidential)
	first, err := codeToken(config, oauth2.GenerateVerifier())
	if err != nil {
		return err
	}
	second, err := renew(config, first)
	if err != nil {
		return err
	}
	_, err = renew(config, first)
	if err := refused(err, invalidGrant()); err != nil {
		return err
	}
	third, err := renew(config, second)
	if strict {
		return refused(err, invalidGrant())
	}
	return opens(third, err)
}

// renew uses the refresh token, as the library does when an access token has expired.
func renew(config *oauth2.Config, token *oauth2.Token) (*oauth2.Token, error) {
	return config.TokenSource(background, &oauth2.Token{RefreshToken: token.RefreshToken}).Token()
}

func codeToken(config *oauth2.Config, verifier string) (*oauth2.Token, error) {
	code, err := authorize(config, verifier)
	if err != nil {
		return nil, err
	}
	if verifier == "" {
		return config.Exchange(background, code)
	}
	return config.Exchange(background, code, oauth2.VerifierOption(verifier))
}

// authorize sends the user to the login page and returns the code.
func authorize(config *oauth2.Config, verifier string) (string, error) {
	var options []oauth2.AuthCodeOption
	if verifier != "" {
		options = append(options, oauth2.S256ChallengeOption(verifier))
	}
	answer, err := login(config.AuthCodeURL(state, options...))
	if err != nil {
		return "", err
	}
	if code := answer.Get("error"); code != "" {
		return "", &oauth2.RetrieveError{ErrorCode: code}
	}
	if answer.Get("state") != state || (answer.Get("iss") == issuer) != strict {
		return "", fmt.Errorf("the browser came back with %v", answer)
	}
	return answer.Get("code"), nil
}

// login plays the operator's login page: the user bob logs in, and the page asks the gateway. It returns the parameters
// of the URL that the browser comes back to.
func login(wanted string) (url.Values, error) {
	at, err := url.Parse(wanted)
	if err != nil {
		return nil, err
	}
	form := at.Query()
	form.Set("provision_key", "the-login-page")
	form.Set("authenticated_userid", "bob")
	address := os.Getenv("OAUTH2_BACK_CHANNEL") + "/" + way + "/oauth2/authorize"
	request, err := http.NewRequest("POST", address, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("X-Forwarded-Proto", "https")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	var told struct {
		RedirectURI string `json:"redirect_uri"`
	}
	if err := json.Unmarshal(body, &told); err != nil || told.RedirectURI == "" {
		return nil, fmt.Errorf("the gateway told the login page %s", body)
	}
	back, err := url.Parse(told.RedirectURI)
	if err != nil {
		return nil, err
	}
	registered, err := url.Parse(at.Query().Get("redirect_uri"))
	if err != nil {
		return nil, err
	}
	for name, values := range registered.Query() {
		if back.Query().Get(name) != values[0] && values[0] != "" {
			return nil, fmt.Errorf("the browser came back to %s", back)
		}
	}
	return back.Query(), nil
}

func bearer(token *oauth2.Token) *http.Client {
	return oauth2.NewClient(background, oauth2.StaticTokenSource(token))
}

// opens checks that a token of bob opens the upstream.
func opens(token *oauth2.Token, err error) error {
	if err != nil {
		return err
	}
	return call(bearer(token), http.StatusOK, "bob", "read")
}

// call asks the upstream, and checks the status and what the upstream has learnt about the user.
func call(client *http.Client, status int, user, scope string) error {
	response, err := client.Get(issuer + "/resource")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var seen struct {
		Headers map[string]any `json:"headers"`
	}
	if response.StatusCode != status {
		return fmt.Errorf("the upstream answered %s instead of %d", response.Status, status)
	}
	if status != http.StatusOK {
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(&seen); err != nil {
		return err
	}
	text := func(name string) string {
		value, _ := seen.Headers[name].(string)
		return value
	}
	wanted := []string{"app", user, scope}
	found := []string{text("x-consumer-username"), text("x-authenticated-userid"), text("x-authenticated-scope")}
	if strings.Join(wanted, "|") != strings.Join(found, "|") {
		return fmt.Errorf("the upstream has seen %q instead of %q", found, wanted)
	}
	return nil
}

// refused turns the refusal that a case expects into success.
func refused(err error, code string) error {
	var refusal *oauth2.RetrieveError
	if errors.As(err, &refusal) && refusal.ErrorCode == code {
		return nil
	}
	if err == nil {
		return fmt.Errorf("it was not refused with %s", code)
	}
	return fmt.Errorf("it was not refused with %s but: %w", code, err)
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "keys" {
		if err := makeKeys(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	for _, name := range os.Args[min(2, len(os.Args)):] {
		run := cases[name]
		if run == nil {
			run = func() error { return errors.New("there is no such case") }
		}
		report(name, run())
	}
}

func report(name string, err error) {
	line := map[string]any{"case": name, "failure": nil}
	if err != nil {
		line["failure"] = err.Error()
	}
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(line); err == nil {
		os.Stdout.Write(text.Bytes())
	}
}
