//! Snippets: texts of a configuration that run in a phase, one after the other.

use crate::abi::{Code, Ending, Pending};
use crate::globals::Globals;
use crate::handles::{Function, Suspended};
use crate::target::{Phase, Target};
use crate::vm::{self, Ran, Vm};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// The snippets of a phase, as texts of the configuration.
#[derive(Debug, Clone)]
pub struct Snippets {
    pub texts: Arc<[String]>,
    pub globals: Globals,
}

/// The snippets of a phase on a worker. They are compiled when they first run.
pub struct Scripts {
    snippets: Snippets,
    functions: RefCell<Vec<Script>>,
}

/// A snippet on a worker.
#[derive(Debug, Clone)]
enum Script {
    New,
    /// It has not run yet. If it returns a function, that function runs from then on.
    Compiled(Rc<Function>),
    Known(Rc<Function>),
}

/// Snippets that wait.
pub struct Progress {
    suspended: Suspended,
    at: usize,
    /// Whether the snippet runs for the first time.
    is_first: bool,
}

/// The result of running snippets.
pub enum Outcome {
    Done,
    Ended(Ending),
    Failed(String),
    /// They wait for the future, and go on with [`Scripts::resume`].
    Waits(Progress, Pending),
    /// They wait for the client's body.
    WaitsForBody(Progress),
}

impl Scripts {
    pub fn new(snippets: Snippets) -> Self {
        let functions = vec![Script::New; snippets.texts.len()];
        Self {
            snippets,
            functions: RefCell::new(functions),
        }
    }

    /// Runs the snippets in order, until one ends the request, fails or waits.
    pub fn run(&self, target: &Target<'_>) -> Outcome {
        vm::with(|vm| self.run_from(vm, 0, target))
    }

    /// Continues after a wait.
    pub fn resume(&self, progress: Progress, target: &Target<'_>) -> Outcome {
        let Progress {
            suspended,
            at,
            is_first,
        } = progress;
        vm::with(|vm| {
            let ran = vm.resume(suspended, target);
            match self.after(vm, ran, at, is_first, target) {
                Some(outcome) => outcome,
                None => self.run_from(vm, at + 1, target),
            }
        })
    }

    // The functions below run within one use of the VM, so that it is not replaced between them.

    fn run_from(&self, vm: &mut Vm, first: usize, target: &Target<'_>) -> Outcome {
        if first == 0 {
            // Nothing of another request is left, such as what a snippet of it made before one that does not compile.
            vm.cx.ending = None;
        }
        for at in first..self.snippets.texts.len() {
            let (function, is_first) = match self.function(vm, at, target) {
                Ok(found) => found,
                Err(error) => return Outcome::Failed(error),
            };
            let ran = vm.start(&function, target);
            if let Some(outcome) = self.after(vm, ran, at, is_first, target) {
                return outcome;
            }
        }
        if target.raw.phase == Phase::HeaderFilter {
            // A response that is made in this phase does not end the snippet: it replaces the response at the end.
            if let Some(ending) = vm.cx.ending.take() {
                return Outcome::Ended(ending);
            }
        }
        Outcome::Done
    }

    /// Returns the function of a snippet, and whether it runs for the first time.
    fn function(
        &self,
        vm: &mut Vm,
        at: usize,
        target: &Target<'_>,
    ) -> Result<(Rc<Function>, bool), String> {
        let known = self.functions.borrow()[at].clone();
        match known {
            Script::Known(function) if vm.has(&function) => Ok((function, false)),
            Script::Compiled(function) if vm.has(&function) => Ok((function, true)),
            // The others are of a VM that was replaced.
            Script::New | Script::Compiled(_) | Script::Known(_) => {
                let Snippets { texts, globals } = &self.snippets;
                let function = vm.compile(Code::Snippet, &texts[at], globals, target)?;
                let function = Rc::new(function);
                self.functions.borrow_mut()[at] = Script::Compiled(function.clone());
                Ok((function, true))
            }
        }
    }

    /// Returns the outcome if the snippets do not go on with the next one.
    fn after(
        &self,
        vm: &mut Vm,
        ran: Ran,
        at: usize,
        is_first: bool,
        target: &Target<'_>,
    ) -> Option<Outcome> {
        let progress = |suspended| Progress {
            suspended,
            at,
            is_first,
        };
        match ran {
            Ran::Done(returned) if is_first => {
                let compiled = self.functions.borrow()[at].clone();
                let known = match (returned, compiled) {
                    (Some(function), _) => Rc::new(function),
                    (None, Script::Compiled(function) | Script::Known(function)) => {
                        self.functions.borrow_mut()[at] = Script::Known(function);
                        return None;
                    }
                    (None, Script::New) => return None,
                };
                self.functions.borrow_mut()[at] = Script::Known(known.clone());
                let ran = vm.start(&known, target);
                self.after(vm, ran, at, false, target)
            }
            Ran::Done(_) => None,
            Ran::Ended(ending) => Some(Outcome::Ended(ending)),
            Ran::Stopped => Some(Outcome::Done),
            Ran::Failed(error) => Some(Outcome::Failed(error)),
            Ran::Waits(suspended, pending) => Some(Outcome::Waits(progress(suspended), pending)),
            Ran::WaitsForBody(suspended) => Some(Outcome::WaitsForBody(progress(suspended))),
        }
    }
}
