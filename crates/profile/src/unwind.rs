//! From a copied stack to the addresses of its functions.

use crate::Error;
use crate::elf::{ElfFile, Module};
use crate::memory_map::{self, Mapping};
use crate::sampler::{Registers, Sample};
use framehop::{
    CacheNative, ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind,
    UnwindRegsNative, Unwinder as _, UnwinderNative,
};
use std::ops::Range;
use std::sync::Arc;

/// Functions of a stack. Further outer functions are left out.
const MAX_FRAMES: usize = 256;

/// Modules of the process and their tables.
pub(crate) struct Unwinding {
    unwinder: UnwinderNative<Arc<[u8]>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    modules: Vec<Module>,
    /// All executable memory, as of the last look.
    mappings: Vec<Mapping>,
}

impl Unwinding {
    pub(crate) fn new() -> Result<Self, Error> {
        let mut unwinding = Self {
            unwinder: UnwinderNative::new(),
            cache: CacheNative::new(),
            modules: Vec::new(),
            mappings: Vec::new(),
        };
        unwinding.look()?;
        Ok(unwinding)
    }

    /// Finds code that was loaded since the last look. Code that was unloaded keeps its names.
    pub(crate) fn look(&mut self) -> Result<(), Error> {
        let found = memory_map::read().map_err(Error::of("read /proc/self/maps"))?;
        for mapping in &found {
            if self.mappings.contains(mapping) {
                continue;
            }
            if let Some(module) = Module::of(mapping) {
                self.unwinder.add_module(framehop_module(&module));
                self.modules.push(module);
            }
        }
        self.mappings = found;
        Ok(())
    }

    pub(crate) fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// Appends the addresses of the functions, innermost first. Returns whether the outermost one was reached.
    pub(crate) fn frames(&mut self, sample: &Sample<'_>, frames: &mut Vec<u64>) -> bool {
        let Registers { sp, .. } = sample.registers;
        let mut read = |address: u64| word(sample.stack, sp, address).ok_or(());
        let mut iterator = self.unwinder.iter_frames(
            sample.registers.pc,
            native(sample.registers),
            &mut self.cache,
            &mut read,
        );
        while frames.len() < MAX_FRAMES {
            match iterator.next() {
                Ok(Some(frame)) if is_code(&self.mappings, frame) => {
                    frames.push(frame.address_for_lookup());
                }
                Ok(None) => return true,
                // Without tables, as in code made at run time, the next address may be anything.
                Ok(Some(_)) | Err(_) => return false,
            }
        }
        false
    }
}

fn is_code(mappings: &[Mapping], frame: FrameAddress) -> bool {
    let address = frame.address_for_lookup();
    mappings.iter().any(|one| one.addresses.contains(&address))
}

/// Reads a word of the copied stack, which begins at `start`.
fn word(stack: &[u8], start: u64, address: u64) -> Option<u64> {
    let at = usize::try_from(address.checked_sub(start)?).ok()?;
    let bytes = stack.get(at..at.checked_add(8)?)?;
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(target_arch = "x86_64")]
fn native(registers: Registers) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.pc, registers.sp, registers.fp)
}

#[cfg(target_arch = "aarch64")]
fn native(registers: Registers) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.lr, registers.sp, registers.fp)
}

fn framehop_module(module: &Module) -> framehop::Module<Arc<[u8]>> {
    let sections = module.source.read(sections).unwrap_or_default();
    framehop::Module::new(
        module.mapping.path.clone(),
        module.mapping.addresses.clone(),
        module.bias,
        sections,
    )
}

/// The tables for unwinding.
fn sections(file: &dyn ElfFile) -> ExplicitModuleSectionInfo<Arc<[u8]>> {
    let section = |name| -> (Option<Range<u64>>, Option<Arc<[u8]>>) {
        match file.section(name) {
            Some((address, data)) => (
                Some(address..address + data.len() as u64),
                Some(data.into()),
            ),
            None => (None, None),
        }
    };
    let (eh_frame_svma, eh_frame) = section(".eh_frame");
    let (eh_frame_hdr_svma, eh_frame_hdr) = section(".eh_frame_hdr");
    let (got_svma, _) = section(".got");
    ExplicitModuleSectionInfo {
        base_svma: 0,
        got_svma,
        eh_frame_svma,
        eh_frame,
        eh_frame_hdr_svma,
        eh_frame_hdr,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_outside_of_the_copy_cannot_be_read() {
        let stack = [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(word(&stack, 100, 100), Some(1_u64.to_le()));
        assert_eq!(word(&stack, 100, 108), Some(2_u64.to_le()));
        for address in [99, 109, 116, 0, u64::MAX] {
            assert_eq!(word(&stack, 100, address), None, "{address}");
        }
    }
}
