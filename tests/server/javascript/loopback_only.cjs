// Preloaded into a program under test: a connection to anything but this machine fails.
"use strict";

const net = require("node:net");

const HERE = new Set(["127.0.0.1", "::1", "localhost"]);
const connect = net.Socket.prototype.connect;

net.Socket.prototype.connect = function (...given) {
  const [options] = Array.isArray(given[0]) ? given[0] : given;
  const host = typeof options === "object" ? options.host : given[1];
  if (host !== undefined && !HERE.has(host)) {
    process.stderr.write(`refused a connection to ${host}\n`);
    throw new Error(`refused a connection to ${host}`);
  }
  return connect.apply(this, given);
};
