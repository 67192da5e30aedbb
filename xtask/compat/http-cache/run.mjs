// Runs the suite cache-tests, which is in the directory `suite`. `serve` is its origin server, on a free port. `test URL` runs its client against a
// cache, and writes a line of JSON for each case.

import path from 'node:path'

const load = file => import(new URL(`suite/${file}`, import.meta.url))
const [verb, base] = process.argv.slice(2)

if (verb === 'serve') {
  process.env.npm_config_protocol = 'http'
  process.env.npm_config_port = '0'
  process.env.npm_config_pidfile = path.join(process.cwd(), 'server.pid')
  // The server only prints its port.
  console.log = line => {
    const port = /Listening on .*:(\d+)\//.exec(line)
    if (port) console.error(`serving on ${port[1]}`)
  }
  await load('test-engine/server/server.mjs')
} else {
  const { default: tests } = await load('tests/index.mjs')
  const { runTests, getResults } = await load('test-engine/client/runner.mjs')
  const { determineTestResult, resultTypes } = await load('test-engine/lib/results.mjs')
  await runTests(tests, false, base)
  const results = getResults()
  const names = new Map(Object.entries(resultTypes).map(([name, type]) => [type, name]))
  for (const test of tests.flatMap(group => group.tests).filter(test => !test.browser_only)) {
    const result = names.get(determineTestResult(tests, test.id, results))
    const why = results[test.id] === true ? null : String(results[test.id])
    console.log(JSON.stringify({ case: test.id, kind: test.kind ?? 'required', result, why }))
  }
  // The suite leaves connections open.
  process.exit(0)
}
