//! The operations on tokens, for any backend.

use crate::secret::Made;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use uuid::Uuid;

/// Keeps tokens and codes. All times are in seconds since 1970.
///
/// Whether a token may be used is judged when it is found, by the clock that the caller passes. A row that has ended is
/// not found any more, whether it still takes space or not.
pub trait TokenStore: Send + Sync {
    /// Finds the live row with this access token. The access token may have expired: the caller compares
    /// [`Token::access_ends`], because an expired one answers differently from an unknown one in logs.
    fn find_by_access_token(&self, token: &str, now: i64) -> Reply<'_, Option<Token>>;

    /// Finds the row with this refresh token, also one that was refreshed or revoked: [`Token::state`].
    fn find_by_refresh_token(&self, token: &str, now: i64) -> Reply<'_, Option<Token>>;

    /// Finds the live row with this id.
    fn find_by_id(&self, id: Uuid, now: i64) -> Reply<'_, Option<Token>>;

    /// Finds the row with this id, also one that was refreshed or revoked: [`Token::state`].
    fn find_known(&self, id: Uuid, now: i64) -> Reply<'_, Option<Token>>;

    /// Issues a token. When the reply has come, the token survives a crash.
    fn issue(&self, token: NewToken, now: i64) -> Reply<'_, Issued>;

    /// Issues a code.
    fn issue_code(&self, code: NewCode, now: i64) -> Reply<'_, Made>;

    /// Finds a code that nobody has taken. To look at a code does not consume it.
    fn find_code(&self, code: &str, now: i64) -> Reply<'_, Option<Code>>;

    /// Takes a code and issues its token in one step. Of all attempts to take a code, one gets a token; the others get
    /// `None`. If `revoke_on_replay` is set, a replay ends the tokens of the code (RFC 9700 section 2.1.1). A token of
    /// another credential than the code's takes nothing and ends nothing: the code may be stolen.
    fn take_code(
        &self,
        code: &str,
        token: NewToken,
        revoke_on_replay: bool,
        now: i64,
    ) -> Reply<'_, Option<Issued>>;

    /// Replaces a row by a new one with other tokens, of the same family, in one step. Of all attempts to refresh with a
    /// refresh token, one gets a token. The old access token is refused at once.
    fn refresh(&self, refresh_token: &str, token: NewToken, now: i64) -> Reply<'_, RefreshOutcome>;

    /// Refreshes once more with a refresh token that was used, for a client that did not get the answer. Replaces the row
    /// that has followed row `id`, if it was issued less than `within` seconds ago and has not been refreshed itself.
    fn refresh_again(
        &self,
        id: Uuid,
        token: NewToken,
        within: i64,
        now: i64,
    ) -> Reply<'_, Option<Issued>>;

    /// Gives a row a new access token and a new life under the same id, with the same refresh token, in one step
    /// (`reuse_refresh_token`). Returns `None` if there is no live row with this refresh token.
    fn renew(
        &self,
        refresh_token: &str,
        expires_in: i64,
        ttl: Option<i64>,
        now: i64,
    ) -> Reply<'_, Option<Issued>>;

    /// Writes a whole row, as the Admin API does. Of rows that have ended, only the one with the same id can stand in the
    /// way: their tokens may be used again.
    fn write(&self, row: Imported, how: Write, now: i64) -> Reply<'_, WriteOutcome>;

    /// Ends a row: it is refused, and an import of the same id does not bring it back.
    fn revoke(&self, id: Uuid, now: i64) -> Reply<'_, bool>;

    /// Ends the live row among those that have followed this one. Of all rows of a grant, only the last is live. Returns
    /// whether there was one.
    fn revoke_successor(&self, id: Uuid, now: i64) -> Reply<'_, bool>;

    /// Lists live rows in a stable order, from the one after `after`. A page may have fewer than `most` rows, and even
    /// none, although there are more: the work for a page is bounded.
    fn list(&self, of: Listed, after: Option<Cursor>, most: usize, now: i64) -> Reply<'_, Page>;

    /// Imports rows. The outcomes are in their order. Rows that are there already are skipped, so an import can be
    /// repeated. When the reply has come, the rows survive a crash.
    fn import(&self, rows: Vec<Imported>, now: i64) -> Reply<'_, Vec<ImportOutcome>>;

    /// Frees the space of what has ended, a slice at a time. Returns whether there is more.
    fn expire(&self, now: i64) -> Reply<'_, bool>;

    /// Returns what the store counts.
    fn counts(&self) -> Reply<'_, Counts>;
}

/// What an operation returns: at once, or later. What is read from memory never waits.
pub enum Reply<'a, T> {
    Ready(Result<T, StoreError>),
    Wait(Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>),
}

impl<T> Reply<'_, T> {
    /// Waits for the result, on a thread that may block.
    pub fn wait(self) -> Result<T, StoreError> {
        let mut future = match self {
            Reply::Ready(result) => return result,
            Reply::Wait(future) => future,
        };
        let waker = Arc::new(Unpark(std::thread::current())).into();
        let mut context = Context::from_waker(&waker);
        loop {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(result) => return result,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    /// Waits for the result.
    pub async fn get(self) -> Result<T, StoreError> {
        match self {
            Reply::Ready(result) => result,
            Reply::Wait(future) => future.await,
        }
    }
}

/// Wakes a thread.
struct Unpark(std::thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    #[error("the store of tokens failed: {0}")]
    Storage(String),
    #[error("{0}")]
    Crypto(&'static str),
    #[error("too many operations wait for the store of tokens")]
    Busy,
    /// There is no room for more rows. What ends tokens goes on.
    #[error("the store of tokens is full")]
    Full,
    #[error("the store of tokens is closed")]
    Closed,
    #[error("a row in the store of tokens cannot be read")]
    Damaged,
    /// Another version of the program has written the store.
    #[error("it was written in format {found}, this program reads {own}; it is unchanged")]
    Format { found: u64, own: u64 },
}

/// The entity that a token belongs to, with the revision in which it was created. A token whose entity was deleted, or
/// deleted and made again with the same id, is refused, without a search for the tokens of an entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Owner {
    pub id: Uuid,
    pub created: u64,
}

/// What a new token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    pub credential: Owner,
    /// `None` for a token of a plugin with `global_credentials`.
    pub service: Option<Owner>,
    /// Seconds that the access token lives. 0: it does not expire.
    pub expires_in: i64,
    /// Whether it gets a refresh token.
    pub with_refresh_token: bool,
    /// Seconds that the row lives. `None`: it does not end.
    pub ttl: Option<i64>,
    pub scope: Option<String>,
    pub authenticated_userid: Option<String>,
}

impl NewToken {
    /// The time at which the row ends. A row without a refresh token also ends with its access token.
    pub(crate) fn ends(&self, now: i64) -> Option<i64> {
        let row = self.ttl.map(|ttl| now.saturating_add(ttl));
        let access = (self.expires_in > 0).then(|| now.saturating_add(self.expires_in));
        match (self.with_refresh_token, row, access) {
            (true, row, _) => row,
            (false, Some(row), Some(access)) => Some(row.min(access)),
            (false, row, access) => row.or(access),
        }
    }
}

/// A token as it was issued: the only time at which its texts are known without the sealing key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    pub id: Uuid,
    pub access_token: Made,
    pub refresh_token: Option<Made>,
    pub created_at: i64,
}

/// A row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub id: Uuid,
    pub credential: Owner,
    pub service: Option<Owner>,
    pub expires_in: i64,
    pub created_at: i64,
    /// The time at which the row ends.
    pub ends: Option<i64>,
    pub scope: Option<String>,
    pub authenticated_userid: Option<String>,
    pub state: State,
    pub has_refresh_token: bool,
    /// The texts, if they are stored and were asked for: the lists have them.
    pub texts: Option<Texts>,
}

/// The texts of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Texts {
    pub access_token: Made,
    pub refresh_token: Option<Made>,
}

impl Token {
    /// The time at which the access token expires.
    pub fn access_ends(&self) -> Option<i64> {
        (self.expires_in > 0).then(|| self.created_at.saturating_add(self.expires_in))
    }
}

/// What has become of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum State {
    Live,
    /// Another row has taken its place.
    Superseded,
    Revoked,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefreshOutcome {
    Issued(Issued),
    /// The refresh token of this row was used before.
    Replayed(Uuid),
    Unknown,
}

/// An authorization code that is issued.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NewCode {
    pub credential: Owner,
    pub service: Option<Owner>,
    /// The instance of the plugin that issues it.
    pub plugin: Option<Uuid>,
    pub redirect_uri: Option<String>,
    pub scope: Option<String>,
    pub authenticated_userid: Option<String>,
    pub challenge: Option<String>,
    pub challenge_method: Option<String>,
    /// Seconds that it lives.
    pub ttl: i64,
}

/// A code that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    pub id: Uuid,
    pub code: NewCode,
}

/// How a row is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// There must be no row with the id, also none that was revoked and could still live.
    Create,
    /// Replaces the live row with the id, if it still has this access token.
    Replace { access_token: Known },
    /// Replaces the row with the id, or creates one. A row that has ended comes to life again.
    Put,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    Written,
    /// There is no live row with the id, or it has another access token by now.
    NotFound,
    /// There is a row with the id.
    IdTaken,
    /// This live row has the access token.
    AccessTaken(Uuid),
    /// This live row has the refresh token.
    RefreshTaken(Uuid),
}

/// What a store counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Rows that are live, or that have ended a short time ago.
    pub live: u64,
    /// Live tokens that never end.
    pub endless: u64,
    /// Look-ups that have waited for the disk since the start.
    pub waited: u64,
    /// Look-ups that ran on another thread because they might have had to wait.
    pub aside: u64,
}

/// The rows of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    All,
    OfCredential(Uuid),
    OfService(Uuid),
}

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub tokens: Vec<Token>,
    /// Where the next page begins; `None` at the end of the list.
    pub next: Option<Cursor>,
}

/// A position in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// The row before the position.
    pub(crate) id: Uuid,
    /// Whether it was listed among the loose rows. A row may become loose, so the id does not tell.
    pub(crate) is_loose: bool,
}

const LOOSE: char = '~';

impl std::fmt::Display for Cursor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_loose {
            write!(formatter, "{LOOSE}")?;
        }
        self.id.fmt(formatter)
    }
}

impl Cursor {
    /// Reads what [`Display`](std::fmt::Display) has written.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, is_loose) = match text.strip_prefix(LOOSE) {
            Some(id) => (id, true),
            None => (text, false),
        };
        let id = Uuid::try_parse(id).ok()?;
        Some(Self { id, is_loose })
    }
}

/// The text of an imported token, or what is known of it.
#[derive(Clone, PartialEq, Eq)]
pub enum Known {
    Text(String),
    /// The SHA-256 of the text.
    Sha256([u8; 32]),
}

impl std::fmt::Debug for Known {
    /// Does not show the text, because texts for debugging reach logs.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Known(…)")
    }
}

/// A row from elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    pub id: Uuid,
    pub access_token: Known,
    pub refresh_token: Option<Known>,
    pub credential: Owner,
    pub service: Option<Owner>,
    pub expires_in: i64,
    pub created_at: i64,
    pub ends: Option<i64>,
    pub scope: Option<String>,
    pub authenticated_userid: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportOutcome {
    Imported,
    /// It is there already, with the same content.
    Present,
    /// A row with this id was superseded, revoked or deleted.
    Ended,
    /// Its time is over.
    Expired,
    /// Another row has this id.
    OtherContent,
    /// Another row has this access token or refresh token.
    OtherId,
}
