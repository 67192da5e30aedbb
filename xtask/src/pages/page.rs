//! Finds the blocks of commands in a page of the documentation, each with the output that the page shows for it.

/// The way in which the commands of a block are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Runs to the end and must succeed.
    Succeeds,
    /// Runs to the end and must fail.
    Fails,
    /// Runs in the background until the end of the page.
    Background,
    /// Is not run.
    Never,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Line number in the page at which the block begins, from 1.
    pub(super) line: usize,
    pub(super) way: Way,
    pub(super) commands: String,
    pub(super) output: Option<String>,
}

/// Languages of blocks that may show the output of commands.
const OUTPUTS: [&str; 4] = ["text", "json", "yaml", "http"];

/// Maximum number of non-empty lines between commands and their output.
const LINES_BETWEEN: usize = 1;

struct Fence<'t> {
    line: usize,
    words: Vec<&'t str>,
    content: String,
    /// Number of non-empty lines between the previous block and this one.
    text_before: usize,
}

/// Returns the blocks of commands in the order of the page.
pub(super) fn blocks(text: &str) -> Result<Vec<Block>, String> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut follows_commands = false;
    for fence in fences(text)? {
        match fence.words.as_slice() {
            ["sh", words @ ..] => {
                blocks.push(Block {
                    line: fence.line,
                    way: way(words).map_err(|problem| format!("line {}: {problem}", fence.line))?,
                    commands: fence.content,
                    output: None,
                });
                follows_commands = true;
                continue;
            }
            [language] if OUTPUTS.contains(language) && follows_commands => {
                if let Some(block) = blocks.last_mut()
                    && fence.text_before <= LINES_BETWEEN
                {
                    block.output = Some(fence.content);
                }
            }
            _ => {}
        }
        follows_commands = false;
    }
    Ok(blocks)
}

fn way(words: &[&str]) -> Result<Way, String> {
    match words {
        [] => Ok(Way::Succeeds),
        ["fails"] => Ok(Way::Fails),
        ["background"] => Ok(Way::Background),
        ["norun"] => Ok(Way::Never),
        _ => Err(format!("unknown kind of block: `sh {}`", words.join(" "))),
    }
}

/// Returns the fenced blocks of a page. A block in a list is indented; this indentation is removed from its content.
fn fences(text: &str) -> Result<Vec<Fence<'_>>, String> {
    let mut fences = Vec::new();
    let mut text_before = 0;
    let mut lines = text.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        let trimmed = line.trim_start();
        let Some(info) = trimmed.strip_prefix("```") else {
            text_before += usize::from(!trimmed.is_empty());
            continue;
        };
        let indent = line.len() - trimmed.len();
        let mut content = String::new();
        loop {
            let Some((line, _)) = lines.next() else {
                return Err(format!("line {number}: the fence is not closed"));
            };
            if line.trim() == "```" {
                break;
            }
            let blanks = line.len() - line.trim_start().len();
            content.push_str(&line[blanks.min(indent)..]);
            content.push('\n');
        }
        fences.push(Fence {
            line: number,
            words: info.split_whitespace().collect(),
            content,
            text_before,
        });
        text_before = 0;
    }
    Ok(fences)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_output_that_follows_them() {
        let text = "\
```sh
a
b
```

Output:

```text
1
```
```sh fails
c
```
```sh background
d
```
";
        let block = |line, way, commands: &str, output: Option<&str>| Block {
            line,
            way,
            commands: commands.to_owned(),
            output: output.map(str::to_owned),
        };
        assert_eq!(
            blocks(text).unwrap(),
            [
                block(1, Way::Succeeds, "a\nb\n", Some("1\n")),
                block(11, Way::Fails, "c\n", None),
                block(14, Way::Background, "d\n", None),
            ]
        );
    }

    #[test]
    fn a_fence_further_down_shows_no_output_of_the_commands() {
        let text = "```sh\na\n```\n\nOne.\n\nTwo.\n\n```text\n1\n```\n";
        assert_eq!(blocks(text).unwrap()[0].output, None);
        let text = "```sh\na\n```\n```toml\n1\n```\n```text\n1\n```\n";
        assert_eq!(blocks(text).unwrap()[0].output, None);
    }

    #[test]
    fn a_fence_in_a_list_loses_its_indentation() {
        let text = "1. One:\n\n   ```sh\n   a\n     b\n   ```\n";
        assert_eq!(blocks(text).unwrap()[0].commands, "a\n  b\n");
    }

    #[test]
    fn an_invalid_block_is_an_error_with_its_line() {
        let unknown = blocks("\n```sh slowly\na\n```\n").unwrap_err();
        assert_eq!(unknown, "line 2: unknown kind of block: `sh slowly`");
        let open = blocks("```sh\na\n").unwrap_err();
        assert_eq!(open, "line 1: the fence is not closed");
    }
}
