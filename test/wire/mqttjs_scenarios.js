// What an application on mqtt.js does, one scenario a run:
//   node mqttjs_scenarios.js PORT VERSION SCENARIO TOPIC
// Exit status 0 when all was as it should be.
'use strict';
const assert = require('assert');
const crypto = require('crypto');
const mqtt = require('mqtt');

const [port, version, scenario, topic] = process.argv.slice(2);
const is5 = Number(version) === 5;
const clients = [];

// A connected client; its messages are read with next().
function connect(options = {}) {
  return new Promise((resolve, reject) => {
    const client = mqtt.connect(`mqtt://127.0.0.1:${port}`,
                                {protocolVersion: Number(version), reconnectPeriod: 0, ...options});
    const waiting = [], came = [];
    client.on('message', (from, payload, packet) => {
      const message = {topic: from, payload, packet};
      waiting.length ? waiting.shift()(message) : came.push(message);
    });
    client.next = () => came.length ? Promise.resolve(came.shift())
                                    : new Promise((done) => waiting.push(done));
    client.on('error', reject);
    client.on('connect', (connack) => {
      client.sessionPresent = connack.sessionPresent;
      clients.push(client);
      resolve(client);
    });
  });
}

function publish(client, to, payload, options = {}) {
  return new Promise((resolve, reject) => client.publish(
      to, payload, {qos: 1, ...options}, (error) => error ? reject(error) : resolve()));
}

function subscribe(client, filter, qos = 1) {
  return new Promise((resolve, reject) => client.subscribe(
      filter, {qos}, (error, granted) => error ? reject(error) : resolve(granted)));
}

function end(client) {
  return new Promise((resolve) => client.end(false, {}, resolve));
}

const scenarios = {
  async will() {
    const watcher = await connect();
    await subscribe(watcher, topic);
    const mortal = await connect({will: {topic, payload: 'gone', qos: 1}});
    mortal.stream.destroy();
    assert.strictEqual((await watcher.next()).payload.toString(), 'gone');
  },

  async session() {
    const session = {clientId: `mqttjs ${version} ${topic}`, clean: false};
    if (is5) session.properties = {sessionExpiryInterval: 300};
    const first = await connect(session);
    assert(!first.sessionPresent);
    await subscribe(first, topic, 2);
    await end(first);
    const publisher = await connect();
    await publish(publisher, topic, 'one', {qos: 1});
    await publish(publisher, topic, 'two', {qos: 2});
    const again = await connect(session);
    assert(again.sessionPresent);
    assert.strictEqual((await again.next()).payload.toString(), 'one');
    assert.strictEqual((await again.next()).payload.toString(), 'two');
  },

  async shared() {
    const members = [await connect(), await connect()];
    const counts = [0, 0];
    const done = new Promise((resolve) => members.forEach((member, at) => member.on('message', () => {
      counts[at]++;
      if (counts[0] + counts[1] === 10) resolve();
    })));
    for (const member of members) await subscribe(member, `$share/group/${topic}`);
    const publisher = await connect();
    for (let i = 0; i < 10; i++) await publish(publisher, topic, String(i));
    await done;
    assert(counts[0] > 0 && counts[1] > 0, counts);
  },

  async request() {
    const asking = await connect(), answering = await connect();
    await subscribe(asking, `${topic}/answer`);
    await subscribe(answering, topic);
    const sent = {payloadFormatIndicator: true, contentType: 'text/plain',
                  responseTopic: `${topic}/answer`, correlationData: Buffer.from([0, 7, 255]),
                  userProperties: {b: ['1', '3'], a: '2'}};
    await publish(asking, topic, 'question', {properties: sent});
    const {packet} = await answering.next();
    const got = packet.properties;
    assert.deepStrictEqual({...got, userProperties: {...got.userProperties}}, sent);
    await publish(answering, got.responseTopic, 'answer',
                  {properties: {correlationData: got.correlationData}});
    const answer = await asking.next();
    assert.deepStrictEqual(answer.packet.properties.correlationData, sent.correlationData);
  },

  async large() {
    const payload = crypto.randomBytes((1 << 20) - 1024);
    const client = await connect();
    await subscribe(client, `${topic}/#`);
    await publish(client, `${topic}/\u00fc/\u6771`, payload);
    const message = await client.next();
    assert.strictEqual(message.topic, `${topic}/\u00fc/\u6771`);
    assert(payload.equals(message.payload));
  },
};

scenarios[scenario]().then(() => Promise.all(clients.map(end))).then(
    () => process.exit(0),
    (error) => {
      process.stderr.write(`${error.stack || error}\n`);
      process.exit(1);
    });
