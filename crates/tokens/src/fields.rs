//! Fields of stored rows, one after the other. An optional field begins with a byte that says whether it is there.

use crate::store::Owner;
use uuid::Uuid;

/// Writes fields.
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn new(form: u8) -> Self {
        let mut out = Vec::with_capacity(512);
        out.push(form);
        Self(out)
    }

    pub(crate) fn end(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Writes bytes whose number is known to the reader.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn number(&mut self, number: i64) {
        self.bytes(&number.to_le_bytes());
    }

    /// Writes bytes with their number.
    pub(crate) fn text(&mut self, text: &[u8]) {
        self.bytes(&(text.len() as u32).to_le_bytes());
        self.bytes(text);
    }

    pub(crate) fn owner(&mut self, owner: &Owner) {
        self.bytes(owner.id.as_bytes());
        self.bytes(&owner.created.to_le_bytes());
    }

    pub(crate) fn optional<T: ?Sized>(
        &mut self,
        field: Option<&T>,
        write: impl FnOnce(&mut Self, &T),
    ) {
        self.byte(u8::from(field.is_some()));
        if let Some(field) = field {
            write(self, field);
        }
    }
}

/// Reads fields. `None` if they are not complete.
pub(crate) struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    /// Starts with a row of this form.
    pub(crate) fn of(stored: &'b [u8], form: u8) -> Option<Self> {
        let (first, rest) = stored.split_first()?;
        (*first == form).then_some(Self(rest))
    }

    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        Some(self.array::<1>()?[0])
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn number(&mut self) -> Option<i64> {
        Some(i64::from_le_bytes(self.array()?))
    }

    pub(crate) fn text(&mut self) -> Option<&'b [u8]> {
        let length = u32::from_le_bytes(self.array()?);
        self.take(usize::try_from(length).ok()?)
    }

    pub(crate) fn string(&mut self) -> Option<String> {
        str::from_utf8(self.text()?).ok().map(str::to_owned)
    }

    pub(crate) fn owner(&mut self) -> Option<Owner> {
        Some(Owner {
            id: Uuid::from_bytes(self.array()?),
            created: u64::from_le_bytes(self.array()?),
        })
    }

    pub(crate) fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<Option<T>> {
        match self.byte()? {
            0 => Some(None),
            1 => Some(Some(read(self)?)),
            _ => None,
        }
    }
}
