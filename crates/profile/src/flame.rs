//! A flame graph: each function is a box above its caller, as wide as its share of the samples.

use crate::Profile;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// Size of the picture and of a box, in pixels.
const WIDTH: f64 = 1200.0;
const ROW: usize = 18;
const TOP: usize = 48;
const BOTTOM: usize = 26;

/// Boxes that are narrower are left out. So the picture has at most some thousands of boxes in a row.
const NARROWEST: f64 = 0.3;

/// Width of a character of the labels, about.
const CHARACTER: f64 = 6.6;

/// Rows above this one are left out.
const MAX_ROWS: usize = 200;

/// Characters of a name in a tooltip.
const MAX_NAME: usize = 400;

/// A function in the context of its callers.
#[derive(Debug, Default)]
struct Node<'p> {
    samples: u64,
    callees: BTreeMap<&'p str, Node<'p>>,
}

pub(crate) fn draw(profile: &Profile) -> String {
    let mut svg = String::new();
    write(&mut svg, profile).expect("writing to memory does not fail");
    svg
}

fn write(svg: &mut String, profile: &Profile) -> fmt::Result {
    let groups: Vec<String> = (profile.stacks.iter())
        .map(|stack| group(&stack.thread))
        .collect();
    let mut root = Node::default();
    for (stack, thread) in profile.stacks.iter().zip(&groups) {
        let frames = stack.frames.iter().rev();
        let names = frames.map(|frame| profile.functions[frame.function].name.as_str());
        root.add([thread.as_str()].into_iter().chain(names), stack.samples);
    }
    let rows = root.rows().min(MAX_ROWS);
    let height = TOP + rows * ROW + BOTTOM;
    writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"monospace\" font-size=\"11\">\n<style>{STYLE}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fdfdfb\"/>"
    )?;
    let seconds = profile.samples() as f64 * profile.period as f64 / 1e9;
    writeln!(
        svg,
        "<text x=\"8\" y=\"18\" font-size=\"14\">CPU time: {seconds:.2} s in {:.1} s ({} samples)</text>\n\
         <text id=\"find\" x=\"1192\" y=\"18\" text-anchor=\"end\">Search</text>\n\
         <text id=\"reset\" x=\"8\" y=\"36\" visibility=\"hidden\">Show all</text>\n\
         <text id=\"found\" x=\"1192\" y=\"36\" text-anchor=\"end\"></text>",
        profile.duration.as_secs_f64(),
        profile.samples()
    )?;
    writeln!(
        svg,
        "<text id=\"about\" x=\"8\" y=\"{}\"></text>\n<g id=\"boxes\">",
        height - 8
    )?;
    let mut boxes = Boxes {
        svg,
        total: root.samples.max(1),
        bottom: height - BOTTOM,
    };
    boxes.draw("all", &root, 0, 0)?;
    writeln!(
        svg,
        "</g>\n<script>//<![CDATA[\n{SCRIPT}\n//]]></script>\n</svg>"
    )
}

/// Threads of the same kind are drawn as one: `worker-0` and `worker-1` are `worker`.
fn group(thread: &str) -> String {
    let kind = thread.trim_end_matches(|one: char| one.is_ascii_digit() || one == '-');
    if kind.is_empty() { thread } else { kind }.to_owned()
}

impl<'p> Node<'p> {
    fn add(&mut self, names: impl Iterator<Item = &'p str>, samples: u64) {
        self.samples += samples;
        let mut node = self;
        for name in names.take(MAX_ROWS) {
            node = node.callees.entry(name).or_default();
            node.samples += samples;
        }
    }

    /// Number of rows of this node and the nodes above it.
    fn rows(&self) -> usize {
        let above = self.callees.values().map(Node::rows);
        1 + above.max().unwrap_or(0)
    }
}

struct Boxes<'s> {
    svg: &'s mut String,
    /// Samples of the whole picture.
    total: u64,
    bottom: usize,
}

impl Boxes<'_> {
    /// Draws a node that begins after `before` samples, and those above it.
    fn draw(&mut self, name: &str, node: &Node<'_>, before: u64, row: usize) -> fmt::Result {
        let scale = WIDTH / self.total as f64;
        let (x, width) = (before as f64 * scale, node.samples as f64 * scale);
        if width < NARROWEST || row >= MAX_ROWS {
            return Ok(());
        }
        let y = self.bottom.saturating_sub((row + 1) * ROW);
        let percent = node.samples as f64 * 100.0 / self.total as f64;
        let long: String = name.chars().take(MAX_NAME).collect();
        writeln!(
            self.svg,
            "<g data-x=\"{x:.2}\" data-w=\"{width:.2}\" data-row=\"{row}\"><title>{} ({} samples, {percent:.2} %)</title>\
             <rect x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{}\" fill=\"{}\"/><text x=\"{:.2}\" y=\"{}\">{}</text></g>",
            Escaped(&long),
            node.samples,
            ROW - 1,
            color(name),
            x + 3.0,
            y + 13,
            Escaped(&label(name, width)),
        )?;
        let mut at = before;
        for (name, callee) in &node.callees {
            self.draw(name, callee, at, row + 1)?;
            at += callee.samples;
        }
        Ok(())
    }
}

/// Cuts a name to what fits into a box. The script of the picture cuts in the same way.
fn label(name: &str, width: f64) -> String {
    let room = ((width - 6.0) / CHARACTER).max(0.0) as usize;
    if room < 3 {
        String::new()
    } else if name.chars().count() <= room {
        name.to_owned()
    } else {
        let cut: String = name.chars().take(room - 2).collect();
        cut + ".."
    }
}

/// A warm color, the same for each function of a crate.
fn color(name: &str) -> String {
    let crate_name = name.trim_start_matches(['<', '&']).split("::").next();
    let hash = crate_name
        .unwrap_or(name)
        .bytes()
        .fold(5381_u32, |hash, byte| {
            hash.wrapping_mul(33) ^ u32::from(byte)
        });
    format!(
        "hsl({},{}%,{}%)",
        10 + hash % 45,
        70 + hash / 45 % 20,
        62 + hash / 900 % 14
    )
}

/// Text without characters that XML does not allow.
struct Escaped<'t>(&'t str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '<' => formatter.write_str("&lt;")?,
                '>' => formatter.write_str("&gt;")?,
                '&' => formatter.write_str("&amp;")?,
                '"' => formatter.write_str("&quot;")?,
                control if control.is_control() => formatter.write_char(' ')?,
                other => formatter.write_char(other)?,
            }
        }
        Ok(())
    }
}

const STYLE: &str = "#boxes g{cursor:pointer}#boxes g:hover rect{stroke:#333}#boxes text{pointer-events:none}#find,#reset{cursor:pointer;\
                     text-decoration:underline}.dim{opacity:.35}.hit rect{fill:#c050e0}.gone{display:none}";

/// A click on a box makes it as wide as the picture. Search marks the boxes whose names match.
const SCRIPT: &str = r##"
const all = [...document.querySelectorAll('#boxes g')], at = id => document.getElementById(id);
const number = (box, name) => parseFloat(box.dataset[name]), title = box => box.querySelector('title').textContent;
const name = box => title(box).replace(/ \([0-9]+ samples, [0-9.]+ %\)$/, '');
function cut(text, width) {
  const room = Math.floor(Math.max(0, (width - 6) / 6.6));
  return room < 3 ? '' : text.length <= room ? text : text.slice(0, room - 2) + '..';
}
function zoom(on) {
  const [x, w, row] = ['x', 'w', 'row'].map(part => number(on, part)), scale = 1200 / w;
  for (const box of all) {
    const [bx, bw, brow] = ['x', 'w', 'row'].map(part => number(box, part));
    const below = brow < row && bx <= x + .01 && bx + bw >= x + w - .01;
    const above = brow >= row && bx >= x - .01 && bx + bw <= x + w + .01;
    box.classList.toggle('gone', !below && !above);
    box.classList.toggle('dim', below);
    const left = below ? 0 : (bx - x) * scale, width = below ? 1200 : bw * scale;
    const rect = box.querySelector('rect'), text = box.querySelector('text');
    rect.setAttribute('x', left);
    rect.setAttribute('width', width);
    text.setAttribute('x', left + 3);
    text.textContent = cut(name(box), width);
  }
  at('reset').setAttribute('visibility', row > 0 ? 'visible' : 'hidden');
}
function search() {
  const wanted = prompt('Search (regular expression)');
  let pattern = null;
  try { pattern = wanted ? new RegExp(wanted) : null; } catch { return alert('not a regular expression'); }
  let end = -1, width = 0;
  const hits = all.filter(box => box.classList.toggle('hit', pattern !== null && pattern.test(name(box))));
  hits.sort((a, b) => number(a, 'x') - number(b, 'x') || number(a, 'row') - number(b, 'row'));
  for (const box of hits) {
    if (number(box, 'x') >= end - .001) { width += number(box, 'w'); end = number(box, 'x') + number(box, 'w'); }
  }
  at('found').textContent = pattern ? 'Found: ' + (width / 12).toFixed(2) + ' %' : '';
}
for (const box of all) {
  box.addEventListener('click', () => zoom(box));
  box.addEventListener('mouseover', () => { at('about').textContent = title(box); });
}
at('reset').addEventListener('click', () => zoom(all[0]));
at('find').addEventListener('click', search);
addEventListener('keydown', event => { if ((event.ctrlKey || event.metaKey) && event.key === 'f') { event.preventDefault(); search(); } });
"##;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Frame, Function, Stack};
    use std::time::{Duration, SystemTime};

    pub(crate) fn example() -> Profile {
        let function = |name: &str| Function {
            name: name.to_owned(),
            file: "a.rs".to_owned(),
            module: "program".to_owned(),
        };
        let stack = |thread: &str, samples, frames: &[usize]| Stack {
            thread: thread.to_owned(),
            samples,
            frames: (frames.iter())
                .map(|function| Frame {
                    function: *function,
                    line: 7,
                })
                .collect(),
        };
        Profile {
            started: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000),
            duration: Duration::from_secs(2),
            period: 10_000_000,
            stacks: vec![
                stack("worker-0", 60, &[2, 1, 0]),
                stack("worker-1", 30, &[1, 0]),
                stack("admin", 10, &[3]),
            ],
            functions: ["main", "net::read", "<&T as Fmt>::fmt", "idle"]
                .map(function)
                .into(),
            notes: vec!["a note".to_owned()],
        }
    }

    #[test]
    fn boxes_are_as_wide_as_their_share_and_threads_of_a_kind_are_one() {
        let svg = draw(&example());
        assert!(
            svg.contains("<title>worker (90 samples, 90.00 %)</title>"),
            "{svg}"
        );
        assert!(
            svg.contains("<title>net::read (90 samples, 90.00 %)</title>"),
            "{svg}"
        );
        let inner = "<title>&lt;&amp;T as Fmt&gt;::fmt (60 samples, 60.00 %)</title><rect x=\"120.00\" y=\"";
        assert!(svg.contains(inner), "{svg}");
        assert!(svg.contains("width=\"720.00\""), "{svg}");
        assert!(
            svg.contains("CPU time: 1.00 s in 2.0 s (100 samples)"),
            "{svg}"
        );
    }

    #[test]
    fn an_empty_profile_and_endless_recursion_are_drawn() {
        let mut profile = example();
        profile.stacks.clear();
        assert!(draw(&profile).ends_with("</svg>\n"));
        let deep = vec![
            Frame {
                function: 0,
                line: 0
            };
            10_000
        ];
        profile.stacks = vec![Stack {
            thread: String::new(),
            samples: 1,
            frames: deep,
        }];
        let svg = draw(&profile);
        assert!(svg.len() < 100_000, "{}", svg.len());
    }

    #[test]
    fn folded_lines_begin_with_the_outermost_function() {
        let folded = example().to_folded();
        assert_eq!(
            folded,
            "worker-0;main;net::read;<&T as Fmt>::fmt 60\nworker-1;main;net::read 30\nadmin;idle 10\n"
        );
    }
}
