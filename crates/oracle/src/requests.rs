//! Random requests. Some of their words are those of the routes, so that many requests match. Other words are changed a
//! little, so that requests nearly match.

use crate::random::Random;
use crate::world::{HEADERS, QUERIES, World};
use router::{Request, Scheme};
use std::net::{IpAddr, SocketAddr};

/// A request that owns its data.
#[derive(Debug, Clone)]
pub struct Sample {
    pub method: String,
    pub path: Vec<u8>,
    pub host: Option<Vec<u8>>,
    pub scheme: Scheme,
    pub sni: Option<String>,
    pub query: Option<Vec<u8>>,
    pub source: Option<SocketAddr>,
    pub destination: Option<IpAddr>,
    pub port: u16,
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
}

const ODD_HOSTS: &[&[u8]] = &[
    b"",
    b".",
    b":",
    b":80",
    b"[::1]",
    b"[::1]:8080",
    b"[::1",
    b"[::1]x",
    b"[]:80",
    b"[[::1]]",
    b"[[::1]]:80",
    b"[::1]]:80",
    b"::1",
    b"a.test:",
    b"a.test:x",
    b"a.test:99999999999999999999",
    b"\xff.test",
    b"a.\xfe",
    b"...",
    b"A.TEST",
    b"test",
    b".test",
    b"a.",
    b"a..test",
    b"a.test.",
    b"*.test",
    b"\xc3\xa9.test",
];
const ODD_PATHS: &[&[u8]] = &[
    b"/",
    b"*",
    b"",
    b"//",
    b"/..",
    b"/%2F",
    b"/%",
    b"/%zz",
    b"/\xff\xfe",
    b"/a/../b",
    b"/%61",
    b"/\xc3",
    b"/%C3%A9",
    b"/\xc3\xa9",
    b"/\xe2\x84\xaa",
    b"/./a",
    b"/a/.",
    b"x",
    b"/%00",
];
const TAILS: &[&[u8]] = &[
    b"",
    b"",
    b"/",
    b"/a",
    b"a",
    b"/users/17",
    b"/x/y/z",
    b"//",
    b"/.",
    b"%2Fx",
    b"\xff",
    b"/7",
    b".json",
    b"/\xc3\xa9",
    b"\n",
];

impl Sample {
    pub fn get(path: &[u8]) -> Self {
        Self {
            method: "GET".to_owned(),
            path: path.to_vec(),
            host: None,
            scheme: Scheme::Http,
            sni: None,
            query: None,
            source: None,
            destination: None,
            port: 80,
            headers: Vec::new(),
        }
    }

    pub fn random(random: &mut Random, world: &World) -> Self {
        let scheme = *random.one(&[Scheme::Http, Scheme::Https]);
        let mut sample = Self {
            method: method(random, world),
            host: random.below(8).gt(&0).then(|| host(random, world)),
            scheme,
            sni: (random.below(3) > 0).then(|| sni(random, world)),
            query: random.once_in(2).then(|| query(random, world)),
            source: (random.below(5) > 0).then(|| {
                let address = world.address(random);
                SocketAddr::new(address, *random.one(&world.ports))
            }),
            destination: (random.below(5) > 0).then(|| world.address(random)),
            port: *random.one(&world.ports),
            ..Self::get(&path(random, world))
        };
        for _ in 0..random.below(5) {
            let header = header(random, world);
            sample.headers.push(header);
        }
        if random.once_in(50) {
            // These headers come first, so that the others may exceed the limit on headers.
            let many = (0..random.between(90, 110)).map(|_| (b"x-many".to_vec(), b"1".to_vec()));
            sample.headers.splice(0..0, many);
        }
        sample
    }

    pub fn request(&self) -> Request<'_> {
        Request {
            method: &self.method,
            path: &self.path,
            host: self.host.as_deref(),
            scheme: self.scheme,
            sni: self.sni.as_deref(),
            query: self.query.as_deref(),
            source: self.source,
            destination: self.destination,
            port: self.port,
            headers: &self.headers,
        }
    }
}

fn method(random: &mut Random, world: &World) -> String {
    match random.below(12) {
        0 => "get".to_owned(),
        1 => "OTHER".to_owned(),
        _ => random.one(&world.methods).clone(),
    }
}

fn host(random: &mut Random, world: &World) -> Vec<u8> {
    if random.once_in(8) {
        return random.one(ODD_HOSTS).to_vec();
    }
    let mut host = random.one(&world.hosts).clone().into_bytes();
    match random.below(6) {
        0 => host.splice(0..0, *b"x.").for_each(drop),
        1 => {
            let dot = host.iter().rposition(|byte| *byte == b'.');
            host.truncate(dot.map_or(host.len(), |dot| dot + 1));
            host.extend(b"other");
        }
        _ => {}
    }
    if random.once_in(4) {
        let zeros = *random.one(&["", "", "", "", "", "0"]);
        host.extend(format!(":{zeros}{}", random.one(&world.ports)).bytes());
    }
    change(random, &mut host);
    if random.once_in(60) {
        host.splice(0..0, b"a.".repeat(random.between(50, 150)));
    }
    host
}

fn path(random: &mut Random, world: &World) -> Vec<u8> {
    let mut path = match random.below(10) {
        0 => random.one(ODD_PATHS).to_vec(),
        1..=5 => random.one(&world.paths).clone().into_bytes(),
        _ => {
            let mut path = match random.below(4) {
                0 => random.one(&world.paths).clone().into_bytes(),
                _ => Vec::new(),
            };
            let pattern = random.one(&world.patterns);
            path.extend(random.one(&pattern.examples).bytes());
            path
        }
    };
    path.extend(*random.one(TAILS));
    if random.once_in(6) {
        encode(random, &mut path);
    }
    change(random, &mut path);
    if path.first() != Some(&b'/') && random.below(10) > 0 {
        path.insert(0, b'/');
    }
    if random.once_in(100) {
        let repeated = random.one::<&[u8]>(&[b"/a", b"a", b"/../", b"%61", b"\xff"]);
        path.extend(repeated.repeat(random.between(100, 2_000)));
    }
    // A question mark would end the path.
    path.retain(|byte| *byte != b'?');
    path
}

/// Percent-encodes some of the bytes.
fn encode(random: &mut Random, path: &mut Vec<u8>) {
    let mut encoded = Vec::new();
    for byte in path.iter() {
        match random.below(4) {
            0 => encoded.extend(format!("%{byte:02X}").bytes()),
            1 => encoded.extend(format!("%{byte:02x}").bytes()),
            _ => encoded.push(*byte),
        }
    }
    *path = encoded;
}

/// Sometimes adds, removes or changes one byte, or truncates the text.
fn change(random: &mut Random, text: &mut Vec<u8>) {
    if random.below(6) > 0 || text.is_empty() {
        return;
    }
    let at = random.below(text.len());
    let byte = *random.one(b"aAbB/.0%-_\xff\xc3\xa9 :~");
    match random.below(5) {
        0 => text.insert(at, byte),
        1 => text[at] = byte,
        2 => drop(text.remove(at)),
        3 => text.truncate(at),
        _ => text[at] ^= 0x20,
    }
}

fn sni(random: &mut Random, world: &World) -> String {
    let host = random.one(&world.hosts);
    match random.below(4) {
        0 => format!("x.{host}"),
        1 => host.replace("test", "other"),
        _ => host.clone(),
    }
}

fn query(random: &mut Random, world: &World) -> Vec<u8> {
    let mut query = Vec::new();
    for _ in 0..random.below(4) {
        let name = *random.one(QUERIES);
        let separator = random.one::<&[u8]>(&[b"=", b"=", b"", b"==", b"%3D"]);
        query.extend_from_slice(name.as_bytes());
        query.extend_from_slice(separator);
        let mut value = random.one(&world.values).replace(' ', "+").into_bytes();
        if random.once_in(3) {
            encode(random, &mut value);
        }
        change(random, &mut value);
        query.extend(value);
        query.push(b'&');
    }
    if random.once_in(50) {
        query.splice(0..0, b"many=1&".repeat(random.between(90, 110)));
    }
    query
}

fn header(random: &mut Random, world: &World) -> (Vec<u8>, Vec<u8>) {
    let mut name = random.one(HEADERS).as_bytes().to_vec();
    match random.below(5) {
        0 => name.make_ascii_uppercase(),
        1 => name
            .iter_mut()
            .filter(|byte| **byte == b'-')
            .for_each(|byte| *byte = b'_'),
        _ => {}
    }
    let mut value = match random.below(5) {
        0 => {
            let pattern = random.one(&world.patterns);
            random.one(&pattern.examples).clone()
        }
        1 => random.one(&world.values).to_uppercase(),
        _ => random.one(&world.values).clone(),
    }
    .into_bytes();
    change(random, &mut value);
    (name, value)
}
