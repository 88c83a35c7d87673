// A server of WebSocket by hand, with node's own parser of HTTP: answers each message in capitals. Other requests are told
// their priority. Prints its port.
const http = require('http'), crypto = require('crypto');
const server = http.createServer((request, response) => response.end(request.headers.priority || 'no priority'));
server.on('upgrade', (request, socket) => {
  const key = request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
  const accept = crypto.createHash('sha1').update(key).digest('base64');
  socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n' +
    'Sec-WebSocket-Accept: ' + accept + '\r\n\r\n');
  let had = Buffer.alloc(0);
  socket.on('data', data => {
    had = Buffer.concat([had, data]);
    while (had.length >= 6 && had.length >= 6 + (had[1] & 127)) {
      const len = had[1] & 127, mask = had.subarray(2, 6), opcode = had[0] & 15;
      const text = Buffer.from(had.subarray(6, 6 + len).map((byte, at) => byte ^ mask[at % 4]));
      had = had.subarray(6 + len);
      if (opcode === 8) return socket.end(Buffer.concat([Buffer.from([0x88, len]), text]));
      const answer = Buffer.from(text.toString().toUpperCase());
      socket.write(Buffer.concat([Buffer.from([0x81, answer.length]), answer]));
    }
  });
  socket.on('error', () => {});
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
