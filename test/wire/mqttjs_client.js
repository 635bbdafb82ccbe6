// mqtt.js as a subscriber or a publisher, driven by test/harness/clients.py.
//   node mqttjs_client.js sub PORT VERSION QOS FILTER          one line of JSON per event
//   node mqttjs_client.js pub PORT VERSION QOS TOPIC PAYLOAD RETAIN
'use strict';
const mqtt = require('mqtt');

const [action, port, version, qos, topic, payload, retain] = process.argv.slice(2);
const client = mqtt.connect(`mqtt://127.0.0.1:${port}`, {
  protocolVersion: Number(version),
  reconnectPeriod: 0,
});

function say(value) {
  process.stdout.write(JSON.stringify(value) + '\n');
}

function fail(error) {
  process.stderr.write(`${error}\n`);
  process.exit(1);
}

client.on('error', fail);
client.on('connect', () => {
  if (action === 'pub') {
    const options = {qos: Number(qos), retain: retain === '1'};
    client.publish(topic, payload, options, (error) => error ? fail(error) : client.end());
    return;
  }
  client.on('message', (from, data, packet) => say(
      {topic: from, payload: data.toString(), qos: packet.qos, retain: packet.retain}));
  client.subscribe(topic, {qos: Number(qos)}, (error) => error ? fail(error) : say('subscribed'));
});
