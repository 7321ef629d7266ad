"use strict";
const vscode = require("vscode");

const connect = {
  createDebugAdapterDescriptor({ configuration }) {
    const { host, port } = configuration.connect;
    return new vscode.DebugAdapterServer(port, host);
  },
};

exports.activate = (context) => {
  context.subscriptions.push(
    vscode.debug.registerDebugAdapterDescriptorFactory("debugpy", connect)
  );
};
