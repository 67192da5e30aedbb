//! The modules that snippets can load.

use super::{on_worker, run};

fn check(text: &'static str) {
    assert_eq!(on_worker(move || run(text)), Ok(()), "{text}");
}

#[test]
fn hashes_are_those_of_the_standards() {
    check(
        "local hex = require('resty.string').to_hex
        local function sum(name)
            local hash = require('resty.' .. name):new()
            hash:update('a') hash:update('bc')
            return hex(hash:final())
        end
        assert(sum('md5') == '900150983cd24fb0d6963f7d28e17f72')
        assert(sum('sha1') == 'a9993e364706816aba3e25717850c26c9cd0d89d')
        assert(sum('sha224') == '23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7')
        assert(sum('sha256') == 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad')
        assert(sum('sha384'):sub(1, 32) == 'cb00753f45a35e8bb5a03d699ac65007')
        assert(sum('sha512'):sub(1, 32) == 'ddaf35a193617abacc417349ae204131')
        assert(#require('resty.random').bytes(20) == 20 and require('resty.random').bytes(1e9) == nil)",
    );
}

#[test]
fn aes_encrypts_and_decrypts_in_all_modes() {
    check(
        "local aes, hex = require('resty.aes'), require('resty.string').to_hex
        local text = ('text '):rep(20)
        for _, size in ipairs{128, 192, 256} do
            for _, mode in ipairs{'ecb', 'cbc', 'ctr', 'ofb', 'cfb'} do
                local one = aes:new('secret', '12345678', aes.cipher(size, mode), aes.hash.sha256, 3)
                local sealed = one:encrypt(text)
                assert(sealed ~= text and one:decrypt(sealed) == text, mode)
            end
            local one = aes:new('secret', nil, aes.cipher(size, 'gcm'))
            local sealed = one:encrypt(text)
            assert(one:decrypt(sealed[1], sealed[2]) == text)
            assert(not one:decrypt(sealed[1], ('x'):rep(16)) and not one:decrypt(sealed[1], ''))
        end
        assert(aes.cipher(512, 'cbc') == nil and aes.cipher(128, 'no') == nil)
        -- NIST SP 800-38A and the test case 2 of the specification of GCM.
        local zeros = ('\\0'):rep(16)
        local gcm = aes:new(zeros, nil, aes.cipher(128, 'gcm'), {iv = ('\\0'):rep(12)})
        local sealed = gcm:encrypt(zeros)
        assert(hex(sealed[1]) == '0388dace60b6a392f328c2b971b2fe78')
        assert(hex(sealed[2]) == 'ab6e47d42cec13bdf53a67b21257bddf')",
    );
}

#[test]
fn a_cache_drops_what_was_not_used_for_longest() {
    check(
        "local cache = require('resty.lrucache').new(2)
        cache:set('a', 1) cache:set('b', 2) cache:get('a') cache:set('c', 3)
        assert(cache:get('a') == 1 and cache:get('b') == nil and cache:get('c') == 3)
        assert(cache:count() == 2 and cache:delete('a') and not cache:delete('a'))
        assert(table.concat(cache:get_keys(), ',') == 'c')
        cache:set('d', 4, -1)
        local value, stale = cache:get('d')
        assert(value == nil and stale == 4)",
    );
}

#[test]
fn json_of_any_depth_neither_ends_the_process_nor_is_read() {
    check(
        "local c = require('cjson').new()
        c.decode_max_depth(1000000000) c.encode_max_depth(2147483647)
        assert(not pcall(c.decode, ('['):rep(1000000)))
        local deep = {}
        local t = deep
        for i = 1, 300000 do t[1] = {} t = t[1] end
        assert(not pcall(c.encode, deep))
        assert(c.encode({1}) == '[1]')",
    );
}

#[test]
fn a_module_that_does_not_exist_is_luas_error() {
    check(
        "local ok, e = pcall(require, 'no.such.module')
        assert(not ok and e:match('^[^\\n]*') == \"module 'no.such.module' not found:\", e)",
    );
}
