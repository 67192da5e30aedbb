//! Entries of `sources` and `destinations`: an address or a CIDR block, a port, or both. Kong's code for them is in
//! kong/router/transform.lua (gen_for_nets, parse_ip_addr).

use crate::candidate::Problem;
use expr::{AddressField, AddressTest, Block, Comparison, Expression, NumberField};
use model::entities::Endpoint;

#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    address: Option<AddressTest>,
    port: Option<u16>,
}

/// The end of a connection that entries apply to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Side {
    Source,
    Destination,
}

impl End {
    /// Reads an entry. An address with a slash is a block, even if it contains only one address. The bits after the
    /// block's prefix are ignored.
    pub(crate) fn read(entry: &Endpoint) -> Result<Self, Problem> {
        let address = entry.ip.as_deref().map(|text| {
            let block: Block = text.parse()?;
            Ok::<_, Problem>(if text.contains('/') {
                AddressTest::In(block.aligned())
            } else {
                AddressTest::Equals(block.address())
            })
        });
        Ok(Self {
            address: address.transpose()?,
            port: entry.port,
        })
    }

    pub(crate) fn read_all(entries: &[Endpoint]) -> Result<Vec<Self>, Problem> {
        entries.iter().map(Self::read).collect()
    }

    pub(crate) fn is_address(&self) -> bool {
        matches!(self.address, Some(AddressTest::Equals(_)))
    }

    pub(crate) fn is_block(&self) -> bool {
        matches!(self.address, Some(AddressTest::In(_)))
    }

    pub(crate) fn has_port(&self) -> bool {
        self.port.is_some()
    }

    fn expression(self, side: Side) -> Expression {
        let (address, port) = match side {
            Side::Source => (AddressField::Source, NumberField::SourcePort),
            Side::Destination => (AddressField::Destination, NumberField::DestinationPort),
        };
        let address = self.address.map(|test| Expression::address(address, test));
        let port = self
            .port
            .map(|own| Expression::number(port, Comparison::Equal, own.into()));
        Expression::all(address.into_iter().chain(port).collect())
    }
}

/// Returns the condition that at least one entry matches.
pub(crate) fn any_of(ends: &[End], side: Side) -> Expression {
    Expression::any(ends.iter().map(|end| end.expression(side)).collect())
}
