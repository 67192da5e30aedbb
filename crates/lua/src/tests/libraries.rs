//! The modules that snippets can load.

use super::{on_patient_worker, on_worker, run};

fn check(text: &'static str) {
    assert_eq!(on_patient_worker(move || run(text)), Ok(()), "{text}");
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

#[test]
fn all_modules_of_penlight_can_be_loaded() {
    check(
        "for _, name in ipairs{
            'Date', 'List', 'Map', 'MultiMap', 'OrderedMap', 'Set', 'array2d', 'class', 'compat', 'comprehension',
            'config', 'data', 'func', 'import_into', 'input', 'lexer', 'luabalanced', 'operator', 'permute', 'pretty',
            'seq', 'sip', 'stringio', 'stringx', 'tablex', 'template', 'text', 'types', 'url', 'utils', 'xml',
        } do
            local ok, err = pcall(require, 'pl.' .. name)
            assert(ok and err, name .. ': ' .. tostring(err))
        end
        assert(not pcall(require, 'pl.path'))
        assert(require('pl.stringx').strip('  a ') == 'a')
        assert(require('pl.tablex').deepcompare(require('pl.pretty').read('{1, {a = 2}}'), {1, {a = 2}}))
        assert(require('pl.template').substitute('Hi $(name)', {name = 'you'}) == 'Hi you')
        assert(tostring(require('pl.List')({1, 2}):map('_ * 2')) == '{2,4}')
        local xml = require('pl.xml').parse('<a b=\"1\"><c>t</c></a>', nil, true)
        assert(xml.attr.b == '1' and xml:child_with_name('c'):get_text() == 't')
        assert(require('pl.stringx').split('a b').n == nil and #require('pl.utils').split('a,b', ',') == 2)",
    );
}

#[test]
fn small_modules_of_kong_can_be_loaded() {
    check(
        "local inspect = require 'inspect'
        assert(inspect({1, a = 'x'}) == '{ 1,\\n  a = \"x\"\\n}', inspect({1, a = 'x'}))
        local pool = require 'tablepool'
        local t = pool.fetch('p', 1, 1)
        t.a = 1
        pool.release('p', t)
        local again = pool.fetch('p', 1, 1)
        assert(again == t and again.a == nil and pool.fetch('p', 1, 1) ~= t)
        assert(not pcall(pool.release, 'p', nil))
        assert(require('kong.meta')._VERSION == '3.9.1')
        local ok, err = pcall(require, 'no.such')
        assert(not ok and err:find(\"module 'no.such' not found:\", 1, true), err)",
    );
}

#[test]
fn mlcache_keeps_what_was_computed() {
    check(
        "local mlcache = require 'kong.resty.mlcache'
        local cache = assert(mlcache.new('test', 'kong_db_cache', {
            shm_miss = 'kong_db_cache_miss', shm_locks = 'kong_locks', lru_size = 10, ipc_shm = 'kong_cluster_events',
        }))
        local calls = 0
        local function make(a) calls = calls + 1 return {a = a} end
        local value, err, level = cache:get('k', nil, make, 7)
        assert(value and value.a == 7 and level == 3, err)
        value, err, level = cache:get('k', nil, make, 8)
        assert(value.a == 7 and level == 1 and calls == 1)
        local other = assert(mlcache.new('other', 'kong_db_cache', {shm_locks = 'kong_locks'}))
        assert(other:get('k', nil, make, 9).a == 9)
        local ttl, _, peeked = cache:peek('k')
        assert(ttl and peeked.a == 7)
        assert(cache:get('none', nil, function() return nil end) == nil)
        assert(select(3, cache:get('none', nil, make)) == 1)
        local bulk = mlcache.new_bulk(2)
        bulk:add('b1', nil, function() return 1 end)
        bulk:add('b2', nil, function() return 2 end)
        local results = assert(cache:get_bulk(bulk, {concurrency = 2}))
        assert(results[1] == 1 and results[4] == 2)
        assert(cache:delete('k'))
        assert(cache:peek('k') == nil)",
    );
}

#[test]
fn lpeg_matches_and_reports_errors() {
    check(
        "local lpeg = require 'lpeg'
        local number = lpeg.C(lpeg.R('09') ^ 1) / tonumber
        local list = lpeg.Ct(number * (lpeg.P(',') * number) ^ 0) * -1
        assert(table.concat(list:match('1,22,3'), ' ') == '1 22 3' and list:match('1,') == nil)
        assert(require('re').match('key = value', '{%w+} %s* \"=\" %s* {%w+}') == 'key')
        local ok, err = pcall(lpeg.P, function() error('x') end)
        assert(ok)
        ok, err = pcall(lpeg.match, lpeg.Cmt('a', function() error('from within', 0) end), 'a')
        assert(not ok and err == 'from within', err)
        ok, err = pcall(lpeg.P, {lpeg.V(1) * 'a'})
        assert(not ok and err:find('left recursive', 1, true), err)",
    );
}

#[test]
fn a_pattern_of_lpeg_without_an_end_is_stopped() {
    // Each `a` is followed by a look at all that come after it.
    let text = "local lpeg = require 'lpeg'
        local p = (#(lpeg.P 'a' ^ 0 * 'b') * 'a' + 'a') ^ 0
        pcall(lpeg.match, p, ('a'):rep(1000000))
        error('it went on')";
    let error = on_worker(move || run(text)).expect_err("it is stopped");
    assert_eq!(error, "stopped: it ran for too long");
}
