// worker.js - asks the service off the page's thread.
onmessage = async ({ data: { url, body } }) => {
  try {
    const answer = await fetch(url, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
    postMessage(await answer.json());
  } catch (error) {
    postMessage({ detail: String(error) });
  }
};
