//! The certificate of the HTTPS server: what it is, a request for another one, and its replacement.

import { useSignal } from "@preact/signals";
import { propose } from "../actions/change";
import { MANAGER, ROOT } from "../api/addresses";
import { members } from "../api/client";
import type { Resource } from "../api/types";
import { day } from "../ui/format";
import { Button, Facts, Field } from "../ui/parts";
import { useResource } from "./use";

const LOCATION = `${MANAGER}/NetworkProtocol/HTTPS/Certificates`;
const SERVICE = `${ROOT}/CertificateService/Actions`;

interface Certificate extends Resource {
  Subject?: { CommonName?: string };
  Issuer?: { CommonName?: string };
  ValidNotBefore?: string;
  ValidNotAfter?: string;
  Fingerprint?: string;
  FingerprintHashAlgorithm?: string;
  CertificateString?: string;
}

export function CertificatesView() {
  const { value, problem } = useResource("certificates", () => members<Certificate>(LOCATION));
  const request = useSignal("");
  return (
    <>
      <div class="toolbar">
        <h1>Certificates</h1>
      </div>
      {problem && <p class="bad">{problem}</p>}
      {value?.length === 0 && <p class="empty">The server has no certificate: it serves HTTP.</p>}
      <div class="cards">
        {value?.map((one) => (
          <section class="panel">
            <h2>{one.Name ?? one.Id}</h2>
            <Facts
              rows={[
                ["For", one.Subject?.CommonName],
                ["By", one.Issuer?.CommonName],
                ["Valid", `${day(one.ValidNotBefore)} to ${day(one.ValidNotAfter)}`],
                ["Fingerprint", <code class="wrap">{one.Fingerprint ?? "–"}</code>],
              ]}
            />
          </section>
        ))}
        <Request onRequest={(text) => (request.value = text)} />
        <Replace target={value?.[0]?.["@odata.id"] ?? `${LOCATION}/1`} />
      </div>
      {request.value && (
        <section class="panel">
          <h2>Request for a certificate</h2>
          <pre tabIndex={0} aria-label="request for a certificate">{request.value}</pre>
        </section>
      )}
    </>
  );
}

function Request({ onRequest }: { onRequest: (text: string) => void }) {
  const name = useSignal(location.hostname);
  const submit = (event: Event) => {
    event.preventDefault();
    void propose({
      title: `Request a certificate for ${name.value}`,
      method: "POST",
      target: `${SERVICE}/CertificateService.GenerateCSR`,
      body: { CommonName: name.value, AlternativeNames: [name.value], CertificateCollection: { "@odata.id": LOCATION } },
      unplanned: true,
      after: (body) => onRequest((body as { CSRString?: string }).CSRString ?? ""),
    });
  };
  return (
    <form class="panel form" onSubmit={submit}>
      <h2>Request one</h2>
      <p class="quiet">Makes a request that a certificate authority signs. The key stays here.</p>
      <Field label="Name of this server" name="server" value={name.value} onInput={(value) => (name.value = value)} />
      <Button type="submit" disabled={!name.value}>
        Make …
      </Button>
    </form>
  );
}

function Replace({ target }: { target: string }) {
  const text = useSignal("");
  const submit = (event: Event) => {
    event.preventDefault();
    void propose({
      title: "Replace the certificate",
      method: "POST",
      target: `${SERVICE}/CertificateService.ReplaceCertificate`,
      body: { CertificateString: text.value, CertificateType: "PEM", CertificateUri: { "@odata.id": target } },
      unplanned: true,
      warning: "New connections get the new certificate.",
    });
  };
  return (
    <form class="panel form" onSubmit={submit}>
      <h2>Replace it</h2>
      <p class="field">
        <label for="certificate">Certificate, with its chain, as PEM</label>
        <textarea id="certificate" rows={6} spellcheck={false} value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} />
      </p>
      <Button type="submit" disabled={!text.value.includes("BEGIN CERTIFICATE")}>
        Replace …
      </Button>
    </form>
  );
}
